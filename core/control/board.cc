#include "core/control/board.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include <fmt/format.h>

namespace ronde {
namespace {

constexpr uint64_t kMagic = 0x45444e4f52304231;  // "1B0RONDE"
constexpr size_t kPage = 4096;

constexpr size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

uint64_t JobHash(const std::string& job) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

struct Header {
  uint64_t magic;
  uint64_t epoch;
  uint64_t job_hash;
  uint64_t num_ranks;
  uint64_t staging_bytes;
  alignas(kLine) std::atomic<uint64_t> abort;  // at kAbortOffset
  alignas(kLine) std::atomic<uint64_t> log_tail;
};
static_assert(sizeof(Header) <= kPage && offsetof(Header, abort) == kAbortOffset);

}  // namespace

struct Board::Member {
  alignas(kLine) std::atomic<uint32_t> alive;
  std::atomic<uint32_t> phase;
  std::atomic<uint32_t> process_id;
  alignas(kLine) std::atomic<uint32_t> doze;
  alignas(kLine) std::atomic<uint64_t> log_cursor;
  alignas(kLine) char detail[kDetailBytes];
};

struct Board::Offsets {
  Offsets(int n, size_t staging_bytes) {
    const auto ranks = static_cast<size_t>(n);
    occurrences = kPage + RoundUp(ranks * sizeof(Member), kPage);
    claims = occurrences + ranks * kMaxIds * sizeof(uint32_t);
    log = claims + kMaxIds * sizeof(uint32_t);
    lanes = RoundUp(log + kLogSlots * sizeof(uint64_t), kPage);
    cells = 2 * ranks * kCellStride;
    descriptors = 2 * ranks * kDescriptorBytes;
    lane_stride = RoundUp(cells + descriptors, kPage) + RoundUp(staging_bytes, kPage);
    total = lanes + kNumLanes * lane_stride;
  }
  size_t occurrences, claims, log, lanes, cells, descriptors, lane_stride, total;
};

Result<UniqueFd> Board::Create(int num_ranks, size_t staging_bytes, uint64_t epoch,
                               const std::string& job) {
  const Offsets offsets(num_ranks, staging_bytes);
  Result<UniqueFd> fd = CreateSharedMemory(fmt::format("board-{}", epoch), offsets.total);
  if (!fd.ok()) return fd;
  Header header{};
  header.magic = kMagic;
  header.epoch = epoch;
  header.job_hash = JobHash(job);
  header.num_ranks = static_cast<uint64_t>(num_ranks);
  header.staging_bytes = staging_bytes;
  const size_t constant_bytes = offsetof(Header, abort);
  if (pwrite(fd->get(), &header, constant_bytes, 0) != static_cast<ssize_t>(constant_bytes)) {
    return Status::FromErrno("writing the board's header");
  }
  return fd;
}

Result<Board> Board::Attach(int fd, MappingCache* mappings, const std::string& job) {
  Result<std::shared_ptr<Mapping>> mapping = mappings->Map(fd);
  if (!mapping.ok()) return mapping.status();
  Board board;
  board.mapping_ = *mapping;
  board.base_ = board.mapping_->data();
  const auto* header = reinterpret_cast<const Header*>(board.base_);
  if (board.mapping_->bytes() < kPage || header->magic != kMagic ||
      header->job_hash != JobHash(job) || header->num_ranks == 0 ||
      header->num_ranks > kMaxLocalRanks) {
    return Status::Internal("the board received at start-up is not one of this job and version");
  }
  board.num_ranks_ = static_cast<int>(header->num_ranks);
  board.epoch_ = header->epoch;
  board.staging_bytes_ = header->staging_bytes;
  const Offsets offsets(board.num_ranks_, board.staging_bytes_);
  if (offsets.total != board.mapping_->bytes()) {
    return Status::Internal(fmt::format("the board has {} bytes instead of {}",
                                        board.mapping_->bytes(), offsets.total));
  }
  board.occurrences_ = offsets.occurrences;
  board.claims_ = offsets.claims;
  board.log_ = offsets.log;
  board.lanes_ = offsets.lanes;
  board.lane_stride_ = offsets.lane_stride;
  return board;
}

Board::Member* Board::member(int r) const {
  return reinterpret_cast<Member*>(base_ + kPage) + r;
}

char* Board::detail(int r) const {
  return member(r)->detail;
}
std::atomic<uint32_t>& Board::alive(int r) const {
  return member(r)->alive;
}
std::atomic<uint32_t>& Board::phase(int r) const {
  return member(r)->phase;
}
std::atomic<uint32_t>& Board::process_id(int r) const {
  return member(r)->process_id;
}
std::atomic<uint32_t>& Board::doze(int r) const {
  return member(r)->doze;
}
std::atomic<uint64_t>& Board::log_cursor(int r) const {
  return member(r)->log_cursor;
}

std::atomic<uint32_t>& Board::occurrences(int r, uint32_t id) const {
  auto* row = reinterpret_cast<std::atomic<uint32_t>*>(base_ + occurrences_);
  return row[static_cast<size_t>(r) * kMaxIds + id];
}
std::atomic<uint32_t>& Board::claim(uint32_t id) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(base_ + claims_)[id];
}
std::atomic<uint64_t>& Board::log_slot(uint64_t position) const {
  return reinterpret_cast<std::atomic<uint64_t>*>(base_ + log_)[position & (kLogSlots - 1)];
}
std::atomic<uint64_t>& Board::log_tail() const {
  return reinterpret_cast<Header*>(base_)->log_tail;
}

std::byte* Board::staging(int lane) const {
  return base_ + lanes_ + (static_cast<size_t>(lane) + 1) * lane_stride_ -
         RoundUp(staging_bytes_, kPage);
}

}  // namespace ronde
