// Relay: everything that a job prints, from the ranks' pipes to consoles, files and the memory of
// the last lines.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fd.h"
#include "core/launch/output.h"
#include "core/launch/signals.h"
#include "core/launch/sink.h"
#include "ronde/status.h"

namespace ronde::launch {

struct RelayOptions {
  int ranks = 1;
  bool prefix = false;
  bool quiet = false;
};

// stdout goes to stdout and stderr to stderr; where both are the same file they share one Console,
// which keeps their order. Never blocks, but for writing to per-rank files. A slow reader slows the
// ranks down (their pipes fill), not the launcher. Owned by the running job; one thread.
class Relay {
 public:
  explicit Relay(const RelayOptions& options);
  ~Relay();

  // Needed before Attach. With an `output_dir` that is not empty, makes that folder where it is
  // missing, and empties the per-rank files; the error names the path.
  Status Open(const std::string& output_dir);
  // The reading ends of a rank's pipes, non-blocking.
  Status Attach(int rank, UniqueFd out, UniqueFd err);

  // A line of the launcher's own, on stderr.
  void Say(std::string_view line);

  // Appends what has to be polled.
  void AddPollFds(std::vector<pollfd>* fds) const;
  // Reads what is there (a bounded amount), writes what fits.
  void Step(int64_t now_ns);
  // When Step has to be called at the latest; 0: no such time.
  int64_t next_deadline_ns() const;

  // Reads what is left in the pipes, without waiting for whoever still holds them, and closes them.
  void FinishStreams(int64_t now_ns);
  // Writes what is queued. Waits for slow readers, but no longer than `patience_ms` (-1: for ever)
  // for each next piece, and gives up when the user wants to end. `signals` may be null.
  void DrainConsoles(SignalReader* signals, int patience_ms);

  std::vector<std::string> last_stderr(int rank) const;

 private:
  struct Stream;

  Status OpenFiles(const std::string& folder);
  bool Congested() const;
  bool ReadOnce(Stream* stream, int64_t now_ns);
  void WriteFile(Stream* stream, std::string_view bytes);
  void Close(Stream* stream);

  const RelayOptions options_;
  UniqueFd epoll_;  // the ranks' pipes
  Sink out_sink_;
  std::unique_ptr<Sink> err_sink_;  // null when stderr is the same file as stdout
  Console out_console_;
  Console err_console_;
  Console* const err_;
  std::vector<std::unique_ptr<Stream>> streams_;  // rank's stdout at 2 * rank, stderr after it
};

}  // namespace ronde::launch
