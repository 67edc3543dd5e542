// SoloSet: a declared set in a job of size 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ronde/set.h"

namespace ronde {

class SoloRuntime;

// Owned by the caller, used by one thread at a time, destroyed before its runtime. A round's
// "reduction" is the scaling of what was marked, done in Close.
class SoloSet : public Set {
 public:
  SoloSet(SoloRuntime* runtime, const SetSpec& spec);
  ~SoloSet() override;

  // Makes the slots; before anything else. OutOfMemory names the bytes.
  Status Allocate();

  int num_tensors() const override { return static_cast<int>(spec_.tensors.size()); }
  TensorView slot(int t) const override;
  std::shared_ptr<void> slot_memory() const override { return memory_; }
  Status Mark(int t) override;
  Status Poison(int t, std::string why) override;
  Status Close() override;
  bool round_open() const override { return round_open_; }
  Status Wait(const WaitOptions& options = {}) override;
  bool Poll() override { return true; }
  int contributors(int t) const override { return last_[Index(t)].contributors; }
  Status tensor_status(int t) const override { return last_[Index(t)].status; }
  int64_t round() const override { return round_; }
  const std::vector<int>& buckets() const override { return buckets_; }

 private:
  // What happened to one tensor in a round.
  struct Outcome {
    int contributors = 0;
    Status status;
  };

  static size_t Index(int t) { return static_cast<size_t>(t); }
  // Opens the round and finds `t` in it, or says why not.
  Status Take(int t);

  SoloRuntime* const runtime_;
  const SetSpec spec_;
  std::shared_ptr<void> memory_;
  std::vector<int64_t> offsets_;  // bytes from memory_, of each slot
  std::vector<int> buckets_;
  std::vector<bool> taken_;    // marked or poisoned in the open round
  std::vector<Outcome> open_;  // of the open round
  std::vector<Outcome> last_;  // of the last completed one
  bool round_open_ = false;
  int64_t round_ = 0;
};

}  // namespace ronde
