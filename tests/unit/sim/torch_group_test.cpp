// Which preset PyTorch's pipelining has, by release and set-up: the table of
// docs/semantics.md §8, row by row, and refusals of what nobody has looked at.
#include "sim/torch_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/order/comm_policy.hpp"

namespace pipewright::sim {
namespace torch_group_test {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string preset(const char* release, bool eager = false, bool per_direction = false,
                   bool per_edge = false) {
  return std::string(torch_preset({release, "nccl", eager, per_direction, per_edge}));
}

TEST(TorchGroup, NcclChangesWithReleaseAndSetUp) {
  for (const char* release : {"2.9.1", "2.10.0+cu128", "2.11.0"}) {
    EXPECT_EQ(preset(release), "torch-2.11") << release;
    EXPECT_EQ(preset(release, true), "torch-2.11") << release;
  }
  for (const char* release : {"2.12.0", "2.13.0+cpu", "2.14.1", "2.15.0", "2.13.0a0+git1234"}) {
    EXPECT_EQ(preset(release), "torch-2.12-lazy") << release;
    EXPECT_EQ(preset(release, true), "torch-2.12-eager") << release;
  }
  EXPECT_EQ(preset("2.14.0", true, true), "torch-2.14-per-direction");
  EXPECT_EQ(preset("2.15.0", true, false, true), "torch-2.15-per-edge");
  EXPECT_EQ(preset("2.15.0", false, false, true), "torch-2.15-per-edge");
}

TEST(TorchGroup, GlooOrdersByEdgeWhateverTheRelease) {
  for (const char* release : {"2.9.0", "2.13.0+cpu", "2.15.0"}) {
    for (const bool eager : {false, true})
      EXPECT_EQ(torch_preset({release, "gloo", eager}), "torch-gloo") << release;
  }
  EXPECT_EQ(torch_preset({"2.15.0", "gloo", false, false, true}), "torch-gloo");
}

TEST(TorchGroup, EachIsAPreset) {
  for (const char* release : {"2.9", "2.12", "2.14", "2.15"}) {
    for (const bool eager : {false, true})
      EXPECT_EQ(name_of(comm_policy_preset(preset(release, eager))), preset(release, eager));
  }
}

TEST(TorchGroup, WhatNobodyHasLookedAtIsRefused) {
  for (const char* release :
       {"2.8.0", "2.16.0", "3.0.0", "1.13.1", "", "nightly", "2", "2.", "2.x"}) {
    EXPECT_THAT([&] { preset(release); },
                ThrowsMessage<InputError>(HasSubstr("releases 2.9 to 2.15 are")))
        << release;
  }
  EXPECT_THAT(
      [] {
        torch_preset({"2.13.0", "mpi"});
      },
      ThrowsMessage<InputError>(HasSubstr("\"mpi\"")));
  EXPECT_THAT([] { preset("2.13.0", true, true); },
              ThrowsMessage<InputError>(HasSubstr("came with 2.14")));
  EXPECT_THAT([] { preset("2.14.0", true, false, true); },
              ThrowsMessage<InputError>(HasSubstr("came with 2.15")));
}

}  // namespace torch_group_test
}  // namespace pipewright::sim
