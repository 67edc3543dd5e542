#include "core/launch/output.h"

#include <algorithm>

namespace ronde::launch {

void Console::Write(const void* writer, std::string_view prefix, std::string_view segment) {
  if (segment.empty()) return;
  if (open_line_ != nullptr && open_line_ != writer) {
    sink_->Append("\n");
    open_line_ = nullptr;
  }
  if (open_line_ == nullptr) sink_->Append(prefix);
  sink_->Append(segment);
  const bool finished = segment.back() == '\n' || segment.back() == '\r';
  open_line_ = finished ? nullptr : writer;
}

void Console::WriteLine(std::string_view line) {
  Write(this, "", line);
  Write(this, "", "\n");
}

void LineRelay::Feed(std::string_view bytes, int64_t now_ns) {
  constexpr size_t kMaxPartial = 64 << 10;
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      partial_.append(bytes);
      break;
    }
    const bool both = bytes[end] == '\r' && end + 1 < bytes.size() && bytes[end + 1] == '\n';
    const std::string_view segment = bytes.substr(0, end + (both ? 2 : 1));
    if (partial_.empty()) {
      Emit(segment);
    } else {
      partial_.append(segment);
      FlushPartial();
    }
    bytes.remove_prefix(segment.size());
  }
  if (partial_.empty()) {
    flush_at_ns_ = 0;
  } else if (hold_ns_ == 0 || partial_.size() > kMaxPartial) {
    FlushPartial();
  } else if (hold_ns_ != kForever && flush_at_ns_ == 0) {
    flush_at_ns_ = now_ns + hold_ns_;
  }
}

void LineRelay::FlushPartial() {
  Emit(partial_);
  partial_.clear();
  flush_at_ns_ = 0;
}

void LineRelay::Finish() {
  FlushPartial();
  const bool unfinished = last_emitted_ != '\n' && last_emitted_ != '\r';
  if (unfinished && !prefix_.empty()) Emit("\n");
}

void LineRelay::Emit(std::string_view segment) {
  if (segment.empty()) return;
  // A bare line end right after a carriage return, or the return that a progress bar begins with,
  // is not a line of its own.
  const bool bare = segment == "\r" || (segment == "\n" && last_emitted_ == '\r');
  console_->Write(this, bare ? "" : prefix_, segment);
  last_emitted_ = segment.back();
}

void LastLines::Feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (overwrite_ && end > 0) current_.clear();
    if (end > 0) overwrite_ = false;
    const size_t room = kLineBytes - std::min(kLineBytes, current_.size());
    current_.append(bytes.substr(0, std::min(end, room)));
    if (end == bytes.size()) return;
    if (bytes[end] == '\n') {
      finished_.push_back(std::move(current_));
      current_.clear();
      if (finished_.size() > kLines) finished_.pop_front();
      overwrite_ = false;
    } else {
      overwrite_ = true;
    }
    bytes.remove_prefix(end + 1);
  }
}

std::vector<std::string> LastLines::lines() const {
  std::vector<std::string> lines(finished_.begin(), finished_.end());
  if (!current_.empty()) lines.push_back(current_);
  if (lines.size() > kLines) lines.erase(lines.begin());
  return lines;
}

}  // namespace ronde::launch
