#include "core/order/comm_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/order/comm_policy_json.hpp"

namespace pipewright {
namespace comm_policy_test {

TEST(CommPolicy, DefaultHasAQueueForEachDirectedEdge) {
  const CommPolicy policy;
  EXPECT_EQ(to_string(policy.issue), "stream");
  EXPECT_EQ(to_string(policy.channel), "edge");
  EXPECT_EQ(to_string(policy.post), "early");
  EXPECT_EQ(to_string(policy.send_f), "rendezvous");
  EXPECT_EQ(name_of(policy), "torch-gloo");
}

TEST(CommPolicy, EveryPresetIsFoundByItsName) {
  for (const auto& preset : comm_policy_presets()) {
    EXPECT_EQ(comm_policy_preset(preset.name), preset.policy);
    EXPECT_EQ(name_of(preset.policy), preset.name);
  }
  EXPECT_TRUE(comm_policy_preset("ideal").is_free_of_waits());
  EXPECT_FALSE(comm_policy_preset("torch").is_free_of_waits());
}

TEST(CommPolicy, TorchIsAnAliasOfTorchGlooAndTorchPairStaysAPairPolicy) {
  EXPECT_EQ(comm_policy_preset("torch"), comm_policy_preset("torch-gloo"));
  EXPECT_EQ(comm_policy_preset("torch"), CommPolicy{});
  EXPECT_EQ(comm_policy_preset("torch-pair"), (CommPolicy{.channel = Channel::Pair}));
  EXPECT_THROW(comm_policy_preset(""), InputError);
}

TEST(CommPolicy, PytorchIsNamedByReleaseAndSetUp) {
  const auto stock = [](Channel channel, Batches batches) {
    return CommPolicy{.channel = channel, .batches = batches};
  };
  EXPECT_EQ(comm_policy_preset("torch-2.11"), stock(Channel::Rank, Batches::Joined));
  EXPECT_EQ(comm_policy_preset("torch-2.12-lazy"), stock(Channel::Pair, Batches::Mixed));
  EXPECT_EQ(comm_policy_preset("torch-2.12-eager"), stock(Channel::Rank, Batches::Mixed));
  EXPECT_EQ(comm_policy_preset("torch-2.14-per-direction"),
            stock(Channel::Direction, Batches::Mixed));
  EXPECT_EQ(comm_policy_preset("torch-2.15-per-edge"), stock(Channel::Edge, Batches::Joined));
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    if (!preset.name.starts_with("torch-2.")) continue;
    EXPECT_EQ(to_string(preset.evidence), "read in the source") << preset.name;
  }
  for (const std::string_view name : stock_torch_presets())
    EXPECT_NE(comm_policy_preset(name), CommPolicy{}) << name;
}

TEST(CommPolicy, ProtocolTextRoundTrips) {
  for (const char* text : {"rendezvous", "eager", "eager:1", "eager:12", "eager:4095B"})
    EXPECT_EQ(to_string(parse_protocol(text)), text);
  EXPECT_EQ(parse_protocol("eager:4KiB").credit, 4096);
  for (const char* text :
       {"", "eager:", "eager:0", "eager:-1", "eager:x", "Rendezvous", "eager:1.5"}) {
    EXPECT_THROW(parse_protocol(text), InputError) << text;
  }
}

TEST(CommPolicy, WhatIsNotTheDefaultIsWrittenAndReadBack) {
  CommPolicy policy;
  EXPECT_FALSE(to_json(policy).contains("connect"));
  policy.connect = Connect::FirstUse;
  policy.buffers = Buffers::Registered;
  policy.in_flight = 3;
  policy.batches = Batches::Mixed;
  policy.channel = Channel::Direction;
  const Json json = to_json(policy);
  EXPECT_EQ(json.at("connect"), "first-use");
  EXPECT_EQ(json.at("buffers"), "registered");
  EXPECT_EQ(json.at("batches"), "mixed");
  EXPECT_FALSE(to_json(CommPolicy{}).contains("batches"));
  EXPECT_EQ(read_comm_policy(JsonCursor(json, "policy.json")), policy);
  EXPECT_FALSE(policy.is_free_of_waits());
}

TEST(CommPolicy, UnknownNamesGetASuggestion) {
  try {
    comm_policy_preset("megatron-batchd");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean \"megatron-batched\""));
  }
  EXPECT_THROW(parse_issue("streams"), InputError);
  EXPECT_THROW(parse_channel(""), InputError);
  EXPECT_THROW(parse_post("late"), InputError);
}

}  // namespace comm_policy_test
}  // namespace pipewright
