// Ranks that die: every other rank's pending and later work returns PeerLost that names the rank.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/multirank/requests.h"
#include "tests/support/ranks.h"

namespace ronde {
namespace {

using ::testing::AllOf;
using testing::Call;
using ::testing::HasSubstr;
using testing::RankExit;
using testing::RunRankProcesses;
using testing::TryAllreduce;

constexpr int kRanks = 3;
constexpr int kVeryLongUs = 60'000'000;

// A pipe by which the ranks say that the victim may die now, and by which a child of the victim's
// notices that the test is over.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    CloseWriting();
    close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void Write() const { EXPECT_EQ(write(ends_[1], "x", 1), 1); }
  // Waits for a byte (true) or the end of all writers.
  bool Read() const {
    char byte;
    return read(ends_[0], &byte, 1) == 1;
  }
  void CloseWriting() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

// One step of what the ranks do until the victim is gone. OK, or the error.
using StepFn = std::function<Status(Runtime&)>;
// Set up once on a rank, before the victim may be killed.
using PrepareFn = std::function<StepFn(Runtime&)>;

void ExpectLost(const Status& status, int victim) {
  EXPECT_EQ(status.code(), Code::kPeerLost) << status.ToString();
  EXPECT_THAT(status.ToString(), HasSubstr("rank " + std::to_string(victim)));
}

// The ranks step until the victim, killed `delay_us` after all were ready, is missed.
void KillDuring(const PrepareFn& prepare, int victim, int delay_us,
                const std::function<void(Config&)>& adjust = nullptr) {
  SCOPED_TRACE("victim " + std::to_string(victim) + " after " + std::to_string(delay_us) + " us");
  Pipe ready;
  const std::vector<RankExit> exits = RunRankProcesses(
      kRanks,
      [&](Runtime& runtime) {
        const StepFn step = prepare(runtime);
        EXPECT_TRUE(TryAllreduce(runtime, "ready").ok());
        ready.Write();
        Status status;
        while (status.ok()) status = step(runtime);
        ExpectLost(status, victim);
        ExpectLost(TryAllreduce(runtime), victim);
        ExpectLost(TryAllreduce(runtime, "ready"), victim);
        ExpectLost(TryAllreduce(runtime, "new"), victim);
        ExpectLost(runtime.DeclareSet({"late", {}}).status(), victim);
        ExpectLost(runtime.health(), victim);
      },
      [&](const std::vector<pid_t>& pids) {
        ready.CloseWriting();
        for (int r = 0; r < kRanks; ++r) EXPECT_TRUE(ready.Read());
        usleep(static_cast<useconds_t>(delay_us));
        kill(pids[static_cast<size_t>(victim)], SIGKILL);
      },
      [&](Config& config) {
        config.timeout_ms = 10'000;  // whoever has not heard of the death by then fails
        if (adjust) adjust(config);
      });
  for (int r = 0; r < kRanks; ++r) {
    const RankExit& exit = exits[static_cast<size_t>(r)];
    if (r == victim) {
      EXPECT_EQ(exit.signal, SIGKILL);
    } else {
      EXPECT_EQ(exit.status, 0) << "rank " << r << ", signal " << exit.signal;
    }
  }
}

StepFn Allreduce(const std::string& name, int64_t count) {
  auto call = std::make_shared<Call>(OpKind::kAllreduce, name);
  call->Add({count});
  return [call](Runtime& runtime) { return runtime.Run(**call); };
}

TEST(DeathTest, InSmallOperations) {
  for (const int victim : {0, 1, 2}) {
    for (const int delay_us : {0, 100, 3000}) {
      KillDuring([](Runtime&) { return Allreduce("", 10); }, victim, delay_us);
      KillDuring([](Runtime&) { return Allreduce("named", 10); }, victim, delay_us);
    }
  }
}

TEST(DeathTest, InTheMiddleOfALargeOperation) {
  for (const int victim : {0, 1, 2}) {
    for (const int delay_us : {1000, 5000, 20'000}) {
      KillDuring([](Runtime&) { return Allreduce("", 8'000'000); }, victim, delay_us);
    }
  }
}

StepFn SetRounds(Runtime& runtime) {
  SetSpec spec;
  spec.name = "gradients";
  for (int t = 0; t < 8; ++t) {
    spec.tensors.push_back(
        {"t" + std::to_string(t), Shape::Of(std::vector<int64_t>{100'000}), DType::kFloat32});
  }
  Result<std::unique_ptr<Set>> declared = runtime.DeclareSet(spec);
  EXPECT_TRUE(declared.ok()) << declared.status().ToString();
  const std::shared_ptr<Set> set = std::move(*declared);
  return [set](Runtime&) {
    for (int t = 0; t < set->num_tensors(); ++t) RONDE_RETURN_IF_ERROR(set->Mark(t));
    RONDE_RETURN_IF_ERROR(set->Close());
    return set->Wait();
  };
}

TEST(DeathTest, InSetRounds) {
  for (const Overlap overlap : {Overlap::kOn, Overlap::kOff}) {
    for (const int victim : {0, 1, 2}) {
      for (const int delay_us : {500, 4000}) {
        KillDuring(SetRounds, victim, delay_us, [&](Config& config) {
          config.overlap = overlap;
          config.bucket_bytes = 1 << 20;
        });
      }
    }
  }
}

// The others are long asleep in their waits when it happens.
TEST(DeathTest, WhilePeersSleepInWait) {
  for (const int victim : {0, 1, 2}) {
    for (const char* name : {"", "ready", "never before"}) {
      KillDuring(
          [&](Runtime& runtime) -> StepFn {
            if (runtime.rank() != victim) return Allreduce(name, 10);
            return [](Runtime&) {
              usleep(kVeryLongUs);
              return Status();
            };
          },
          victim, 300'000);
    }
  }
}

// Whoever is ended before its own Shutdown has left its recording all the same.
TEST(DeathTest, TheRecordingIsThereAtOnce) {
  const testing::TempDir dir;
  KillDuring(
      [&](Runtime&) -> StepFn {
        return [&dir, step = Allreduce("", 1000)](Runtime& rank) {
          const Status status = step(rank);
          const std::string path = dir.path() + "/rank-" + std::to_string(rank.rank()) + ".jsonl";
          for (int tries = 0; !status.ok() && tries < 1000 && access(path.c_str(), R_OK) != 0;
               ++tries) {
            usleep(10'000);
          }
          if (!status.ok()) {
            std::ifstream file(path);
            const std::string text((std::istreambuf_iterator<char>(file)), {});
            EXPECT_THAT(text, HasSubstr("\"hop\": \"posted\""));
          }
          return status;
        };
      },
      1, 50'000, [&](Config& config) { config.recorder_dir = dir.path(); });
}

TEST(DeathTest, WhileIdle) {
  for (const int victim : {0, 1, 2}) {
    KillDuring(
        [&](Runtime&) -> StepFn {
          return [](Runtime& runtime) {
            // No operation: the news comes by itself.
            usleep(1000);
            return runtime.health();
          };
        },
        victim, 50'000);
  }
}

// A child of the victim holds all its descriptors, so no socket closes.
TEST(DeathTest, WithALiveChild) {
  for (const int victim : {0, 1}) {
    Pipe over;
    KillDuring(
        [&](Runtime& runtime) -> StepFn {
          if (runtime.rank() == victim && fork() == 0) {
            over.CloseWriting();
            over.Read();
            _exit(0);
          }
          over.CloseWriting();
          return Allreduce("", 10);
        },
        victim, 20'000);
  }
}

TEST(DeathTest, WithMuchMemory) {
  KillDuring(
      [](Runtime& runtime) -> StepFn {
        const int64_t count = runtime.rank() == 1 ? int64_t{512} << 18 : 1;
        auto memory = std::make_shared<std::vector<float>>(static_cast<size_t>(count), 1.0f);
        const StepFn step = Allreduce("", 10);
        return [memory, step](Runtime& r) { return step(r); };
      },
      1, 1000);
}

TEST(DeathTest, ExitWithoutShutdown) {
  for (const int quitter : {0, 1, 2}) {
    Pipe ready;
    const std::vector<RankExit> exits = RunRankProcesses(
        kRanks,
        [&](Runtime& runtime) {
          EXPECT_TRUE(TryAllreduce(runtime, "before").ok());
          if (runtime.rank() == quitter) {
            for (int r = 1; r < kRanks; ++r) EXPECT_TRUE(ready.Read());
            _exit(7);
          }
          ready.Write();
          ExpectLost(TryAllreduce(runtime, "after"), quitter);
        },
        nullptr, [](Config& config) { config.timeout_ms = 10'000; });
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(exits[static_cast<size_t>(r)].status, r == quitter ? 7 : 0) << "rank " << r;
    }
  }
}

TEST(DeathTest, ShutdownWhileOtherProcessesWait) {
  for (const int leaver : {0, 1, 2}) {
    Pipe ready;
    const std::vector<RankExit> exits = RunRankProcesses(
        kRanks,
        [&](Runtime& runtime) {
          EXPECT_TRUE(TryAllreduce(runtime, "before").ok());
          if (runtime.rank() == leaver) {
            for (int r = 1; r < kRanks; ++r) EXPECT_TRUE(ready.Read());
            return;
          }
          ready.Write();
          ExpectLost(TryAllreduce(runtime, "after"), leaver);
        },
        nullptr, [](Config& config) { config.timeout_ms = 10'000; });
    for (const RankExit& exit : exits) EXPECT_EQ(exit.status, 0);
  }
}

// ---- fork ----

void UseInChild(Runtime& runtime, Set* set, const Work& pending) {
  const auto inert = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::kNotInitialized) << status.ToString();
  };
  Call call = Call::Allreduce("");
  inert(runtime.Run(*call));
  inert(runtime.Submit(*call).status());
  inert(runtime.Wait(pending));
  EXPECT_FALSE(runtime.Poll(pending));
  inert(runtime.DeclareSet({"s", {}}).status());
  inert(runtime.health());
  EXPECT_EQ(runtime.stats().works, 0);
  inert(set->Mark(0));
  inert(set->Poison(0, "why"));
  inert(set->Close());
  EXPECT_FALSE(set->Poll());
  runtime.Shutdown();
}

TEST(ForkTest, AChildIsInertAndItsParentUnharmed) {
  const std::vector<RankExit> exits = RunRankProcesses(2, [](Runtime& runtime) {
    SetSpec spec;
    spec.name = "s";
    spec.tensors.push_back({"t", Shape::Of(std::vector<int64_t>{1000}), DType::kFloat32});
    Result<std::unique_ptr<Set>> set = runtime.DeclareSet(spec);
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE((*set)->Mark(0).ok());
      ASSERT_TRUE((*set)->Close().ok());
      Call call = Call::Allreduce("pending");
      const Result<Work> pending = runtime.Submit(*call);
      ASSERT_TRUE(pending.ok());
      Work never;
      Call lonely = Call::Allreduce("lonely");
      if (runtime.rank() == 0) never = *runtime.Submit(*lonely);
      if (runtime.rank() == 0) {
        const pid_t child = fork();
        if (child == 0) {
          UseInChild(runtime, set->get(), never);
          fflush(nullptr);
          _exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      }
      EXPECT_TRUE(runtime.Wait(*pending).ok());
      EXPECT_TRUE((*set)->Wait().ok());
      if (runtime.rank() == 1) never = *runtime.Submit(*lonely);
      EXPECT_TRUE(runtime.Wait(never).ok());
    }
  });
  for (const RankExit& exit : exits) EXPECT_EQ(exit.status, 0) << "signal " << exit.signal;
}

}  // namespace
}  // namespace ronde
