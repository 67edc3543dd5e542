// Status and Result<T>: how every function of Ronde reports failure. Values, never exceptions.
//
// A Status is copyable, cheap (OK is a null pointer) and keeps its type across threads and
// languages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#pragma GCC visibility push(default)
namespace ronde {

// Operation errors (kInvalidArgument, kMismatch, kUnsupported, kNotInitialized) fail one work; the
// job goes on. Group errors (kPeerLost, kTimeout, kAborted, kOutOfMemory after commit, kInternal)
// end the group's epoch: the first one sticks and every later call returns it.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,
  kMismatch = 2,
  kUnsupported = 3,
  kNotInitialized = 4,
  kPeerLost = 5,
  kTimeout = 6,
  kAborted = 7,
  kOutOfMemory = 8,
  kInternal = 9,
};

// "PeerLost" and so on: the name that users see, also the name of the Python exception class.
std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);

  static Status Ok() { return Status(); }
  static Status InvalidArgument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
  static Status Mismatch(std::string m) { return {Code::kMismatch, std::move(m)}; }
  static Status Unsupported(std::string m) { return {Code::kUnsupported, std::move(m)}; }
  static Status NotInitialized(std::string m) { return {Code::kNotInitialized, std::move(m)}; }
  static Status PeerLost(std::string m) { return {Code::kPeerLost, std::move(m)}; }
  static Status Timeout(std::string m) { return {Code::kTimeout, std::move(m)}; }
  static Status Aborted(std::string m) { return {Code::kAborted, std::move(m)}; }
  static Status OutOfMemory(std::string m) { return {Code::kOutOfMemory, std::move(m)}; }
  static Status Internal(std::string m) { return {Code::kInternal, std::move(m)}; }
  // kInternal with errno's text: "what: Permission denied (13)".
  static Status FromErrno(std::string_view what);

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  // Empty when ok.
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : ""; }
  // "OK", or "PeerLost: rank 1 ...".
  std::string ToString() const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

// Ends the process, saying which error was overlooked.
[[noreturn]] void UsedWithoutValue(const Status& status);

// A T or the Status that explains why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {}

  bool ok() const { return state_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<0>(state_); }
  // REQUIRES: ok(); otherwise the process ends with the Status as its last words.
  T& value() & { return *Checked(); }
  const T& value() const& { return *Checked(); }
  T&& value() && { return std::move(*Checked()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  T* Checked() {
    if (!ok()) UsedWithoutValue(std::get<0>(state_));
    return std::get_if<1>(&state_);
  }
  const T* Checked() const { return const_cast<Result*>(this)->Checked(); }

  std::variant<Status, T> state_;
};

// Leaves the enclosing function with the Status when `expr` is not OK.
#define RONDE_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                     \
    if (::ronde::Status ronde_status_ = (expr); !ronde_status_.ok()) return ronde_status_; \
  } while (0)

}  // namespace ronde
#pragma GCC visibility pop
