// The conformance suite: what every backend must do, written once against the public interface.
//
// A backend instantiates it in a few lines (shm_test.cc). By default a pairwise cover of the grid
// is run; CONFORMANCE_GRID=full runs all of it, CONFORMANCE_SEED=<number> another cover.
#pragma once

#include <gtest/gtest.h>

#include "tests/conformance/backend_under_test.h"

namespace ronde::conformance {

class ConformanceTest : public ::testing::TestWithParam<BackendUnderTest> {};

}  // namespace ronde::conformance

#define RONDE_INSTANTIATE_CONFORMANCE(backend, ...)             \
  INSTANTIATE_TEST_SUITE_P(                                     \
      backend, ConformanceTest, ::testing::Values(__VA_ARGS__), \
      [](const ::testing::TestParamInfo<BackendUnderTest>& tested) { return tested.param.name; })
