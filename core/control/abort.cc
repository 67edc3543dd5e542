#include "core/control/abort.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace ronde {
namespace {

// code:8 | culprit:16 | reporter:16, plus a bit that keeps the word non-zero.
constexpr uint64_t kSet = uint64_t{1} << 63;

uint64_t Pack(Code code, int culprit, int reporter) {
  return kSet | static_cast<uint64_t>(code) << 32 | static_cast<uint64_t>(culprit & 0xffff) << 16 |
         static_cast<uint64_t>(reporter & 0xffff);
}

}  // namespace

Status GroupAbort::Raise(int culprit, const Status& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The text comes before the word: whoever dies in between has reported nothing. Once this rank's
  // report stands, its text is constant.
  if (!reported_ && !raised()) {
    const std::string_view text = error.message();
    const size_t bytes = std::min(text.size(), Board::kDetailBytes - 1);
    std::memcpy(board_.detail(rank_), text.data(), bytes);
    board_.detail(rank_)[bytes] = '\0';
    uint64_t expected = 0;
    reported_ = board_.abort_word().compare_exchange_strong(
        expected, Pack(error.code(), culprit, rank_), std::memory_order_seq_cst);
  }
  return status();
}

Status GroupAbort::status() const {
  const uint64_t word = board_.abort_word().load(std::memory_order_seq_cst);
  if (word == 0) return Status::Ok();
  const char* detail = board_.detail(static_cast<int>(word & 0xffff));
  return Status(static_cast<Code>(word >> 32 & 0xff),
                std::string(detail, strnlen(detail, Board::kDetailBytes)));
}

}  // namespace ronde
