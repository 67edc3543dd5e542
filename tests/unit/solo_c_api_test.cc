// The C ABI through the shared library, in a job of size 1.
#include <array>

#include <gmock/gmock.h>

#include "ronde/ronde.h"

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class SoloCApiTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ronde_open(&runtime_), RONDE_OK) << ronde_last_error(); }
  void TearDown() override { ronde_close(runtime_); }

  ronde_runtime* runtime_ = nullptr;
  std::array<float, 3> values_ = {1, 2, 3};
  std::array<float, 3> result_ = {};
};

TEST_F(SoloCApiTest, CollectivesOfOneRank) {
  EXPECT_EQ(ronde_size(runtime_), 1);
  EXPECT_EQ(ronde_rank(runtime_), 0);
  EXPECT_STREQ(ronde_version(), RONDE_VERSION);
  EXPECT_EQ(
      ronde_allreduce(runtime_, values_.data(), result_.data(), 3, RONDE_FLOAT32, RONDE_SUM, "x"),
      RONDE_OK);
  EXPECT_THAT(result_, ElementsAre(1, 2, 3));
  result_ = {};
  EXPECT_EQ(ronde_allgather(runtime_, values_.data(), result_.data(), 3, RONDE_FLOAT32, nullptr),
            RONDE_OK);
  EXPECT_THAT(result_, ElementsAre(1, 2, 3));
  result_ = {};
  EXPECT_EQ(ronde_reducescatter(runtime_, values_.data(), result_.data(), 3, RONDE_FLOAT32,
                                RONDE_AVERAGE, ""),
            RONDE_OK);
  EXPECT_THAT(result_, ElementsAre(1, 2, 3));
  result_ = {};
  EXPECT_EQ(ronde_alltoall(runtime_, values_.data(), result_.data(), 3, RONDE_FLOAT32, nullptr),
            RONDE_OK);
  EXPECT_THAT(result_, ElementsAre(1, 2, 3));
  EXPECT_EQ(ronde_broadcast(runtime_, values_.data(), 3, RONDE_FLOAT32, 0, nullptr), RONDE_OK);
  EXPECT_EQ(ronde_barrier(runtime_), RONDE_OK);
}

TEST_F(SoloCApiTest, StartTestWait) {
  ronde_work* work = nullptr;
  ASSERT_EQ(ronde_allreduce_start(runtime_, values_.data(), result_.data(), 3, RONDE_FLOAT32,
                                  RONDE_SUM, nullptr, &work),
            RONDE_OK);
  EXPECT_EQ(ronde_test(runtime_, work), 1);
  EXPECT_EQ(ronde_wait(runtime_, work, -1), RONDE_OK);
  EXPECT_THAT(result_, ElementsAre(1, 2, 3));
}

TEST_F(SoloCApiTest, WrongArguments) {
  const auto allreduce = [&](int64_t count, int dtype, int op) {
    return ronde_allreduce(runtime_, values_.data(), result_.data(), count,
                           static_cast<ronde_dtype>(dtype), static_cast<ronde_op>(op), "x");
  };
  EXPECT_EQ(allreduce(3, 10, RONDE_SUM), RONDE_INVALID_ARGUMENT);
  EXPECT_STREQ(ronde_last_error(), "dtype is 10; must be 0 to 9");
  EXPECT_EQ(allreduce(3, RONDE_FLOAT32, -1), RONDE_INVALID_ARGUMENT);
  EXPECT_STREQ(ronde_last_error(), "op is -1; must be 0 to 4");
  EXPECT_EQ(allreduce(-3, RONDE_FLOAT32, RONDE_SUM), RONDE_INVALID_ARGUMENT);
  EXPECT_THAT(ronde_last_error(), AllOf(HasSubstr("'x'"), HasSubstr("[1,-3]")));
  EXPECT_EQ(ronde_broadcast(runtime_, values_.data(), 3, RONDE_FLOAT32, 7, "x"),
            RONDE_INVALID_ARGUMENT);
  EXPECT_STREQ(ronde_last_error(), "broadcast 'x': root is 7; must be 0 to 0");
  EXPECT_EQ(ronde_barrier(nullptr), RONDE_NOT_INITIALIZED);
  EXPECT_EQ(ronde_open(nullptr), RONDE_INVALID_ARGUMENT);
}

}  // namespace
