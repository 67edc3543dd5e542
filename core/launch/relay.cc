#include "core/launch/relay.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "core/base/clock.h"

namespace ronde::launch {
namespace {

bool SameFile(int a, int b) {
  struct stat first = {};
  struct stat second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// One rank needs no holding back: nobody else writes in between. A person at a terminal sees
// prompts and progress bars soon; in files and pipes, whole lines matter more.
int64_t HoldNs(const RelayOptions& options, bool is_terminal) {
  if (options.ranks == 1) return 0;
  return is_terminal ? 100 * kNsPerMs : LineRelay::kForever;
}

}  // namespace

struct Relay::Stream {
  UniqueFd fd;  // the rank's pipe; closed at its end
  Console* console;
  LineRelay lines;
  UniqueFd file;
  std::string file_path;
  LastLines last;
  bool is_stderr;
};

Relay::Relay(const RelayOptions& options)
    : options_(options),
      out_sink_(STDOUT_FILENO),
      err_sink_(SameFile(STDOUT_FILENO, STDERR_FILENO) ? nullptr
                                                       : std::make_unique<Sink>(STDERR_FILENO)),
      out_console_(&out_sink_),
      err_console_(err_sink_ ? err_sink_.get() : &out_sink_),
      err_(err_sink_ ? &err_console_ : &out_console_) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    const std::string prefix = options.prefix ? fmt::format("[{}] ", rank) : "";
    for (Console* console : {&out_console_, err_}) {
      const int64_t hold_ns = HoldNs(options, console->sink().is_terminal());
      const bool is_stderr = streams_.size() % 2 == 1;
      streams_.push_back(std::unique_ptr<Stream>(
          new Stream{{}, console, LineRelay(console, prefix, hold_ns), {}, {}, {}, is_stderr}));
    }
  }
}

Relay::~Relay() = default;

Status Relay::Open(const std::string& output_dir) {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return Status::FromErrno("epoll_create1");
  return output_dir.empty() ? Status::Ok() : OpenFiles(output_dir);
}

Status Relay::OpenFiles(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Status::InvalidArgument(
        fmt::format("--output: cannot create the folder '{}': {}", folder, error.message()));
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = *streams_[i];
    stream.file_path =
        fmt::format("{}/rank.{}.{}", folder, i / 2, stream.is_stderr ? "stderr" : "stdout");
    stream.file =
        UniqueFd(open(stream.file_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!stream.file.valid()) {
      return Status::InvalidArgument(fmt::format("--output: cannot write '{}': {}",
                                                 stream.file_path,
                                                 std::generic_category().message(errno)));
    }
  }
  return Status::Ok();
}

Status Relay::Attach(int rank, UniqueFd out, UniqueFd err) {
  const size_t first = 2 * static_cast<size_t>(rank);
  streams_[first]->fd = std::move(out);
  streams_[first + 1]->fd = std::move(err);
  for (const auto& stream : {streams_[first].get(), streams_[first + 1].get()}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = stream;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->fd.get(), &event) != 0) {
      return Status::FromErrno("epoll_ctl");
    }
  }
  return Status::Ok();
}

void Relay::Say(std::string_view line) {
  err_->WriteLine(line);
}

bool Relay::Congested() const {
  constexpr size_t kMaxQueued = 256 << 10;
  return out_sink_.pending_bytes() > kMaxQueued ||
         (err_sink_ && err_sink_->pending_bytes() > kMaxQueued);
}

void Relay::AddPollFds(std::vector<pollfd>* fds) const {
  for (const Sink* sink : {&out_sink_, static_cast<const Sink*>(err_sink_.get())}) {
    if (sink != nullptr && sink->pending_bytes() > 0) fds->push_back({sink->poll_fd(), POLLOUT, 0});
  }
  if (!Congested()) fds->push_back({epoll_.get(), POLLIN, 0});
}

void Relay::Step(int64_t now_ns) {
  std::array<epoll_event, 64> ready;
  const int count = Congested() ? 0 : epoll_wait(epoll_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) {
    ReadOnce(static_cast<Stream*>(ready[static_cast<size_t>(i)].data.ptr), now_ns);
  }
  for (const auto& stream : streams_) {
    const int64_t due_ns = stream->lines.flush_at_ns();
    if (due_ns != 0 && due_ns <= now_ns) stream->lines.FlushPartial();
  }
  out_sink_.Flush();
  if (err_sink_) err_sink_->Flush();
}

int64_t Relay::next_deadline_ns() const {
  int64_t next_ns = 0;
  for (const auto& stream : streams_) {
    const int64_t due_ns = stream->lines.flush_at_ns();
    if (due_ns != 0 && (next_ns == 0 || due_ns < next_ns)) next_ns = due_ns;
  }
  return next_ns;
}

// True when there may be more.
bool Relay::ReadOnce(Stream* stream, int64_t now_ns) {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = read(stream->fd.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (count <= 0) {
    Close(stream);
    return false;
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(count));
  if (stream->is_stderr) stream->last.Feed(bytes);
  WriteFile(stream, bytes);
  if (!options_.quiet) stream->lines.Feed(bytes, now_ns);
  // As if the rank wrote there itself: once nobody reads, it gets SIGPIPE. What it still tells on
  // stderr goes into the summary.
  if (stream->console->sink().closed() && !stream->file.valid() && !stream->is_stderr) {
    Close(stream);
    return false;
  }
  return true;
}

void Relay::WriteFile(Stream* stream, std::string_view bytes) {
  while (stream->file.valid() && !bytes.empty()) {
    const ssize_t written = write(stream->file.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      Say(fmt::format("ronde: cannot write '{}': {}; the file ends here", stream->file_path,
                      std::generic_category().message(errno)));
      stream->file.Reset();
    }
  }
}

void Relay::Close(Stream* stream) {
  stream->lines.Finish();
  stream->fd.Reset();
}

void Relay::FinishStreams(int64_t now_ns) {
  // More than a pipe holds; whoever escaped its rank and goes on writing is not waited for.
  constexpr int kMaxReads = 64;
  for (const auto& stream : streams_) {
    for (int i = 0; i < kMaxReads && stream->fd.valid(); ++i) {
      if (!ReadOnce(stream.get(), now_ns)) break;
    }
    Close(stream.get());
  }
}

void Relay::DrainConsoles(SignalReader* signals, int patience_ms) {
  for (Sink* sink : {&out_sink_, err_sink_.get()}) {
    if (sink == nullptr) continue;
    for (sink->Flush(); sink->pending_bytes() > 0; sink->Flush()) {
      pollfd fds[] = {{sink->poll_fd(), POLLOUT, 0},
                      {signals != nullptr ? signals->fd() : -1, POLLIN, 0}};
      if (poll(fds, 2, patience_ms) == 0) return;
      if (fds[1].revents == 0) continue;
      while (const std::optional<int> signal = signals->Next()) {
        if (IsEndingSignal(*signal)) return;
      }
    }
  }
}

std::vector<std::string> Relay::last_stderr(int rank) const {
  return streams_[2 * static_cast<size_t>(rank) + 1]->last.lines();
}

}  // namespace ronde::launch
