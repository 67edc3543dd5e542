#include "core/plan/rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace ronde {
namespace {

// Largest payload of a cell: what oneshot can carry.
constexpr int64_t kOneShotMaxBytes = 32768;
constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();
constexpr int64_t kMinChunkBytes = 16 << 10;
constexpr std::string_view kDefaults = "*:0-32K=shm/oneshot; *:32769-=shm/staged";
constexpr std::array<std::string_view, 4> kScheduleNames = {"oneshot", "staged", "cached",
                                                            "streamed"};

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<int64_t> ParseSize(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  int shift = 0;
  if (suffix == "K") {
    shift = 10;
  } else if (suffix == "M") {
    shift = 20;
  } else if (suffix == "G") {
    shift = 30;
  } else if (!suffix.empty()) {
    return std::nullopt;
  }
  if (value > kNoBound >> shift) return std::nullopt;
  return value << shift;
}

std::string SizeText(int64_t bytes) {
  if (bytes == kNoBound) return "";
  for (const auto& [shift, suffix] : {std::pair{30, "G"}, {20, "M"}, {10, "K"}}) {
    if (bytes != 0 && bytes % (int64_t{1} << shift) == 0) {
      return fmt::format("{}{}", bytes >> shift, suffix);
    }
  }
  return fmt::format("{}", bytes);
}

std::optional<Schedule> ParseSchedule(std::string_view name) {
  for (size_t i = 0; i < kScheduleNames.size(); ++i) {
    if (kScheduleNames[i] == name) return static_cast<Schedule>(i);
  }
  return std::nullopt;
}

std::string Text(std::string_view kind, const Rule& rule) {
  return fmt::format(
      "{}:{}-{}={}/{}{}\n", kind, SizeText(rule.low_bytes), SizeText(rule.high_bytes), rule.backend,
      ScheduleName(rule.schedule),
      rule.chunk_bytes ? fmt::format("@{}", SizeText(rule.chunk_bytes)) : std::string());
}

// Splits `text` at the first `separator`; false when there is none.
bool Cut(std::string_view text, char separator, std::string_view* left, std::string_view* right) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return false;
  *left = Trim(text.substr(0, at));
  *right = Trim(text.substr(at + 1));
  return true;
}

}  // namespace

std::string_view ScheduleName(Schedule schedule) {
  return kScheduleNames[static_cast<size_t>(schedule)];
}

Result<RuleTable> RuleTable::Make(std::string_view overrides) {
  RuleTable table;
  for (std::string_view rest : {kDefaults, overrides}) {
    while (!rest.empty()) {
      const size_t end = rest.find(';');
      const std::string_view rule = Trim(rest.substr(0, end));
      if (!rule.empty()) RONDE_RETURN_IF_ERROR(table.Append(rule));
      rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
  }
  return table;
}

Status RuleTable::Append(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return Status::InvalidArgument(fmt::format("RONDE_RULES: rule '{}': {}", text, why));
  };
  std::string_view match, action, kind_name, range, low, high, backend, schedule_name, chunk;
  if (!Cut(text, '=', &match, &action) || !Cut(match, ':', &kind_name, &range) ||
      !Cut(range, '-', &low, &high) || !Cut(action, '/', &backend, &schedule_name)) {
    return bad("must be KIND:LOW-HIGH=BACKEND/SCHEDULE[@CHUNK]");
  }
  Rule rule;
  rule.backend = backend;
  std::string_view name;
  if (Cut(schedule_name, '@', &name, &chunk)) {
    schedule_name = name;
    const std::optional<int64_t> bytes = ParseSize(chunk);
    if (!bytes || *bytes < kMinChunkBytes) return bad("the chunk must be a size of at least 16K");
    rule.chunk_bytes = *bytes;
  }
  const std::optional<Schedule> schedule = ParseSchedule(schedule_name);
  if (!schedule) return bad("the schedule must be oneshot, staged, cached or streamed");
  rule.schedule = *schedule;
  const std::optional<int64_t> low_bytes = ParseSize(low);
  const std::optional<int64_t> high_bytes = high.empty() ? kNoBound : ParseSize(high);
  if (!low_bytes || !high_bytes || *low_bytes > *high_bytes) {
    return bad("the range must be LOW-HIGH or LOW-, sizes such as 0, 32K or 1G");
  }
  rule.low_bytes = *low_bytes;
  rule.high_bytes = *high_bytes;
  // What a rank posts must suffice whatever the others' sizes are, so the range of oneshot begins
  // at nothing.
  if (rule.schedule == Schedule::kOneShot &&
      (rule.low_bytes != 0 || rule.high_bytes > kOneShotMaxBytes)) {
    return bad("oneshot needs a range that begins at 0 and ends at 32K or below");
  }
  if (rule.backend != "shm") return bad("the backend must be shm");
  bool known = false;
  for (int k = 0; k < kNumOpKinds; ++k) {
    rule.kind = static_cast<OpKind>(k);
    if (kind_name != "*" && kind_name != OpKindName(rule.kind)) continue;
    rules_[static_cast<size_t>(k)].push_back(rule);
    known = true;
  }
  if (!known) {
    return bad(
        "the kind must be allreduce, allgather, broadcast, reducescatter, alltoall, barrier or *");
  }
  return Status::Ok();
}

const Rule& RuleTable::Find(OpKind kind, int64_t bytes) const {
  const std::vector<Rule>& rules = rules_[static_cast<size_t>(kind)];
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (rule->low_bytes <= bytes && bytes <= rule->high_bytes) return *rule;
  }
  return rules.front();
}

std::string RuleTable::ToString() const {
  size_t common = 0;
  const auto all_have = [this](size_t i) {
    return std::all_of(rules_.begin(), rules_.end(), [&](const std::vector<Rule>& rules) {
      return i < rules.size() && Text("*", rules[i]) == Text("*", rules_[0][i]);
    });
  };
  std::string text;
  for (; common < rules_[0].size() && all_have(common); ++common) {
    text += Text("*", rules_[0][common]);
  }
  for (const std::vector<Rule>& rules : rules_) {
    for (size_t i = common; i < rules.size(); ++i)
      text += Text(OpKindName(rules[i].kind), rules[i]);
  }
  return text;
}

uint64_t RuleTable::Hash() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : ToString()) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace ronde
