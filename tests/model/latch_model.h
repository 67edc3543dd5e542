// The latched plan of docs/protocols.md as state machines without threads: ranks, each with a user
// and an engine, advance by one access to shared words at a time, in an order drawn from a seed.
// Not modelled: who wakes whom (handover.pml), several hosts, the payload (a slice only knows whose
// contributions it holds).
#ifndef RONDE_TESTS_MODEL_LATCH_MODEL_H_
#define RONDE_TESTS_MODEL_LATCH_MODEL_H_

#include <array>
#include <climits>
#include <cstdint>
#include <string>
#include <vector>

namespace ronde::model {

inline constexpr int kMaxRanks = 4, kTensors = 3, kMaxBuckets = 3, kMaxGenerations = 3, kIds = 3;
inline constexpr int kMaxOps = 16, kPoison = -1000, kNever = INT_MAX;

template <typename T>
using PerRank = std::array<T, kMaxRanks>;
template <typename T>
using PerBucket = std::array<T, kMaxBuckets>;

// What a schedule contains, and deliberate faults in the protocol.
struct Options {
  bool operations = true;   // named and unnamed operations beside the plan's lane
  bool join = false;        // ranks run out of data at different rounds
  bool plan_switch = true;  // the root proposes new plans
  bool death = false;       // ranks die
  bool stall = false;       // a rank is declared lost, stops, and goes on later ("zombie")
  // A rank that was asked to prepare promises not to publish steps >= e + promise; the root
  // switches at max(e) + slack.
  int promise = 2, slack = 2;
  bool act_on_own_reading = false;  // after an abort: not on the verdict
  bool publish_early = false;       // the next step's arrival before all D of the last one are seen
  bool propose_early = false;       // a new plan before the last switch is over
};

class World {
 public:
  World(uint64_t seed, const Options& options);

  // Runs the schedule to its end. Empty, or what went wrong first.
  const std::string& Run();
  // How often a user waited at its promise for the root's answer.
  int waits_at_limit() const { return waits_at_limit_; }
  bool aborted() const { return abort_ >= 0; }
  int switches() const { return switches_; }

 private:
  struct Slice {
    int step = -1;
    uint32_t ranks = 0;  // whose contribution it holds
    std::array<int, kTensors> contributors{};
  };
  using Slot = PerRank<Slice>;  // slice i is reduced by rank i
  struct Segment {              // one plan generation's part of the board
    PerRank<PerBucket<int>> arrived{}, done{};
    PerRank<PerBucket<Slot>> slot{};
    int first_step = 0;
  };
  struct Cell {
    int seq = 0, signature = 0;
  };
  struct LogEntry {
    int tag = 0, id = 0;
  };
  struct Message {
    enum Kind { kPrepare, kSwitch, kCancel } kind;
    int step;
  };
  struct Operation {
    bool named = false, may_block = false;
    int id = 0;                   // named: the id
    PerRank<int> signature{};     // unnamed: compared in band
    int round = 0, position = 0;  // unnamed: the position in its lane
  };
  enum class Presence : int8_t { kAbsent, kPresent, kPoisoned };
  enum class At {
    kBegin,
    kRound,
    kPublish,
    kClaim,
    kGather,
    kReserve,
    kStore,
    kBlocked,
    kClose,
    kWait,
    kJoined,
    kDrain,
    kDone,
    kError
  };

  struct User {
    At at = At::kBegin, back_to = At::kRound;
    int step = 0, generation = 0;
    std::vector<int> script;  // tensors as they are, operations + kTensors
    size_t next = 0;
    PerBucket<int> remaining{};
    int bucket = 0;          // to be published
    std::vector<int> batch;  // ids claimed
    int gather_id = 0, log_pos = 0;
    size_t stored = 0;
    int blocked_on = -1;  // operation
    bool joined = false;
    int final_step = -1;
  };
  struct Engine {
    int reducing = -1, reducing_generation = 0, written = 0;
    Slice sum;
    std::array<PerBucket<int>, kMaxGenerations> reduced{}, completed{};
    std::vector<Message> inbox;
    int answer = -1;  // e, read but not yet promised
    int limit = kNever, switch_at = kNever;
    int cursor = 0, cells_written = 0, cells_read = 0;
    bool frozen = false, has_snapshot = false;
    std::array<PerBucket<int>, kMaxGenerations> snapshot{};
  };

  uint32_t Random(uint32_t below);
  // A choice that may always be put off, but not when nothing else moves.
  bool Maybe(uint32_t one_in) { return forced_ || Random(one_in) == 0; }
  bool Check(bool holds, const char* what);
  void Program();

  int Buckets(int generation) const { return 1 + (generation + first_buckets_) % kMaxBuckets; }
  int BucketOf(int tensor, int generation) const { return tensor % Buckets(generation); }
  Presence PresenceOf(int rank, int step, int tensor) const;
  bool Alive(int rank) const { return !dead_[rank]; }

  bool UserActs(int rank);
  bool BeginRound(int rank);
  bool NextItem(int rank);
  void Mark(int rank, int tensor, bool present);
  void Publish(int rank);
  bool SubmitOperation(int rank, int operation);
  bool Claim(int rank, int id);
  bool OperationDone(int rank, int operation) const;
  bool FinishRound(int rank);
  bool JoinedWaits(int rank);
  void EndWithError(int rank);

  bool EngineActs(int rank);
  bool Reduce(int rank);
  bool StartReduce(int rank, int generation, int bucket);
  bool Complete(int rank, int generation, int bucket);
  bool ConsumeLog(int rank);
  bool UnnamedLane(int rank);
  bool Receive(int rank);
  bool Propose();
  bool Settle(int rank);
  int MinDone(int generation, int bucket) const;
  bool SwitchIsOver() const;
  void JudgeTheEnd();

  const Options options_;
  uint64_t random_;
  bool forced_ = false;
  std::string failure_;
  int n_ = 0, rounds_ = 0, first_buckets_ = 0;
  PerRank<int> rounds_of_{};
  std::vector<std::array<std::array<Presence, kTensors>, kMaxRanks>> presence_;
  std::vector<Operation> operations_;

  // The board.
  std::array<Segment, kMaxGenerations> segment_;
  PerRank<std::array<int, kIds>> occurrences_{};
  std::array<int, kIds> claim_{};
  std::array<LogEntry, kIds> log_;
  int tail_ = 0;
  PerRank<std::array<Cell, 2>> cell_{};
  PerRank<bool> joined_{};
  int abort_ = -1;
  bool has_verdict_ = false;
  std::array<PerBucket<int>, kMaxGenerations> verdict_{};

  PerRank<User> user_;
  PerRank<Engine> engine_;
  PerRank<bool> dead_{}, lost_{};

  // The root of the tree.
  bool proposing_ = false;
  int answers_ = 0, latest_ = 0, generation_ = 0, switches_ = 0;

  // What all ranks must agree on.
  std::vector<int> generation_of_step_;
  std::vector<int> log_order_;
  std::vector<int> unnamed_outcome_;
  PerRank<std::array<int, kIds>> named_done_{};
  int join_ended_ = -1;
  int waits_at_limit_ = 0;
};

}  // namespace ronde::model

#endif  // RONDE_TESTS_MODEL_LATCH_MODEL_H_
