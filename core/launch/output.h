// How the output of many ranks becomes one readable stream: whole lines, each with its rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/launch/sink.h"

namespace ronde::launch {

// One destination that several ranks write to. Knows whose unfinished line stands at its end, so
// that another rank's text starts on a line of its own. Owned by the running job; one thread.
class Console {
 public:
  explicit Console(Sink* sink) : sink_(sink) {}

  // Adds one segment: text that ends in "\n" or "\r", or the beginning or continuation of an
  // unfinished line of `writer`. The prefix goes in front where a line begins.
  void Write(const void* writer, std::string_view prefix, std::string_view segment);
  // A line of the launcher's own.
  void WriteLine(std::string_view line);

  Sink& sink() { return *sink_; }

 private:
  Sink* const sink_;
  const void* open_line_ = nullptr;  // whose line is unfinished
};

// One rank's stdout or stderr on its way to a Console. Owned by the running job; one thread.
class LineRelay {
 public:
  // Unfinished lines are passed on after `hold_ns` (0: at once; kForever: when they end, grow
  // beyond 64 KiB, or the stream ends). Carriage returns end a segment too: progress bars move.
  static constexpr int64_t kForever = -1;
  LineRelay(Console* console, std::string prefix, int64_t hold_ns)
      : console_(console), prefix_(std::move(prefix)), hold_ns_(hold_ns) {}

  void Feed(std::string_view bytes, int64_t now_ns);
  // When FlushPartial is due; 0: never.
  int64_t flush_at_ns() const { return flush_at_ns_; }
  void FlushPartial();
  // The stream has ended: what is left becomes a line.
  void Finish();

 private:
  void Emit(std::string_view segment);

  Console* const console_;
  const std::string prefix_;
  const int64_t hold_ns_;
  std::string partial_;
  int64_t flush_at_ns_ = 0;
  char last_emitted_ = '\n';
};

// The last lines of a stream, as a terminal would have shown them. Owned by the running job; one
// thread; bounded memory.
class LastLines {
 public:
  static constexpr size_t kLines = 20;
  static constexpr size_t kLineBytes = 1000;  // the rest of a longer line is left out

  void Feed(std::string_view bytes);
  // Oldest first, without line ends; an unfinished line counts.
  std::vector<std::string> lines() const;

 private:
  std::deque<std::string> finished_;
  std::string current_;
  bool overwrite_ = false;  // a carriage return was the last character
};

}  // namespace ronde::launch
