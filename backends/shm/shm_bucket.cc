#include "backends/shm/shm_bucket.h"

#include <algorithm>

namespace ronde::shm {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kStepBytes = 512 << 10;  // what one Poll reduces at most

}  // namespace

ShmBucket::ShmBucket(const BackendContext& context, SlotBucket bucket)
    : bucket_(std::move(bucket)),
      reduce_(kernels::FindReduce(context.isa, bucket_.dtype, bucket_.op)),
      srcs_(bucket_.slots.size()),
      dsts_(bucket_.slots.size()) {
  const auto n = static_cast<int64_t>(bucket_.slots.size());
  const int64_t unit = kAlign / static_cast<int64_t>(DTypeSize(bucket_.dtype));
  const int64_t width = ((bucket_.count + n - 1) / n + unit - 1) / unit * unit;
  begin_ = std::min(context.rank * width, bucket_.count);
  end_ = std::min(begin_ + width, bucket_.count);
}

Progress ShmBucket::Poll() {
  const auto element = static_cast<int64_t>(DTypeSize(bucket_.dtype));
  const int64_t count = std::min(end_ - done_, kStepBytes / element);
  if (count > 0) {
    for (size_t r = 0; r < bucket_.slots.size(); ++r) {
      srcs_[r] = dsts_[r] = bucket_.slots[r] + done_ * element;
    }
    kernels::ReduceArgs args{};
    args.srcs = srcs_.data();
    args.num_srcs = static_cast<int>(srcs_.size());
    args.dsts = dsts_.data();
    args.num_dsts = static_cast<int>(dsts_.size());
    args.count = static_cast<size_t>(count);
    args.prescale = bucket_.prescale;
    args.postscale = bucket_.postscale;
    args.divisor = static_cast<int>(srcs_.size());
    reduce_(args);
    done_ += count;
  }
  return done_ == end_ ? Progress::kDone : Progress::kBusy;
}

}  // namespace ronde::shm
