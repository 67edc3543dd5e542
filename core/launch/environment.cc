#include "core/launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

extern char** environ;

namespace ronde::launch {
namespace {

constexpr std::array<const char*, 3> kThreadVariables = {"OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                                         "OPENBLAS_NUM_THREADS"};

auto Find(Environment* environment, std::string_view name) {
  return std::find_if(environment->begin(), environment->end(), [&](const std::string& entry) {
    return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
  });
}

bool IsSet(const Environment& environment, std::string_view name) {
  return std::any_of(environment.begin(), environment.end(), [&](const std::string& entry) {
    // An empty value counts as unset: so do OpenMP's libraries take it.
    return entry.size() > name.size() + 1 && entry.starts_with(name) && entry[name.size()] == '=';
  });
}

void Set(Environment* environment, std::string_view name, std::string_view value) {
  std::string entry = fmt::format("{}={}", name, value);
  const auto found = Find(environment, name);
  if (found != environment->end()) {
    *found = std::move(entry);
  } else {
    environment->push_back(std::move(entry));
  }
}

}  // namespace

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

bool LeavesThreadsToUs(const Environment& base) {
  return !std::all_of(kThreadVariables.begin(), kThreadVariables.end(),
                      [&](const char* name) { return IsSet(base, name); });
}

Environment RankEnvironment(const Environment& base, const JobIdentity& identity, int rank,
                            int threads, bool override_threads) {
  Environment environment = base;
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(identity.size);
  // One host: local and global numbers are the same.
  for (const char* name : {"RONDE_RANK", "RONDE_LOCAL_RANK", "RANK", "LOCAL_RANK"}) {
    Set(&environment, name, rank_text);
  }
  for (const char* name : {"RONDE_SIZE", "RONDE_LOCAL_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    Set(&environment, name, size_text);
  }
  Set(&environment, "RONDE_RENDEZVOUS", identity.rendezvous);
  Set(&environment, "RONDE_JOB", identity.job);
  Set(&environment, "GROUP_RANK", "0");
  Set(&environment, "MASTER_ADDR", "127.0.0.1");
  Set(&environment, "MASTER_PORT", std::to_string(identity.master_port));
  // Lines appear when they are printed, although the ranks write to pipes.
  if (!IsSet(base, "PYTHONUNBUFFERED")) Set(&environment, "PYTHONUNBUFFERED", "1");
  for (const char* name : kThreadVariables) {
    if (override_threads || !IsSet(base, name)) {
      Set(&environment, name, std::to_string(threads));
    }
  }
  return environment;
}

}  // namespace ronde::launch
