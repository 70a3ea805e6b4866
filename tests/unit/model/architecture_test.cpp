#include "core/model/architecture.hpp"

#include <gtest/gtest.h>

#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace architecture_test {

using test::refusal;

TEST(Architecture, PresetsHaveThePublishedNumberOfParameters) {
  // Names of the tables: arXiv:2104.04473 table 1, 2005.14165, 2407.21783, 2401.04088, 2405.04434,
  // 2412.19437, 2505.09388, 2508.10925 and the size of Kimi K2's weights; in 10^9.
  const std::pair<const char*, double> published[] = {
      {"megatron-1.7b", 1.7},   {"megatron-3.6b", 3.6},     {"megatron-7.5b", 7.5},
      {"megatron-18b", 18.4},   {"megatron-39b", 39.1},     {"megatron-76b", 76.1},
      {"megatron-145b", 145.6}, {"megatron-310b", 310.1},   {"megatron-530b", 529.6},
      {"megatron-1t", 1008.0},  {"gpt3-175b", 174.6},       {"llama3-8b", 8.03},
      {"llama3-70b", 70.55},    {"llama3-405b", 405.85},    {"mixtral-8x7b", 46.7},
      {"deepseek-v2", 235.7},   {"deepseek-v3", 671.0},     {"kimi-k2", 1026.0},
      {"qwen3-30b-a3b", 30.5},  {"qwen3-235b-a22b", 235.1}, {"gpt-oss-120b", 116.83},
  };
  ASSERT_EQ(std::size(published), architecture_preset_names().size());
  for (const auto& [name, billions] : published) {
    const double rounding = billions < 10 ? 0.05 : billions * 0.005;
    EXPECT_NEAR(parameters(architecture_preset(name)) / 1e9, billions, rounding) << name;
  }
}

TEST(Architecture, ATokenMeetsTheChosenExpertsOnly) {
  EXPECT_NEAR(active_parameters(architecture_preset("mixtral-8x7b")) / 1e9, 12.9, 0.1);
  EXPECT_NEAR(active_parameters(architecture_preset("deepseek-v2")) / 1e9, 21.4, 0.2);
  EXPECT_NEAR(active_parameters(architecture_preset("deepseek-v3")) / 1e9, 37.5, 0.3);
  const Architecture dense = architecture_preset("llama3-8b");
  EXPECT_EQ(active_parameters(dense), parameters(dense));
}

TEST(Architecture, AGptBlockHasTwelveHiddenSquaresAndThirteenHidden) {
  // arXiv:2104.04473, §5.1: P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)).
  const Architecture model = gpt_architecture("gpt", 1024, 24, 16, 51200, 2048);
  const double h = 1024;
  EXPECT_EQ(block_parameters(model, kDenseBlock), 12 * h * h + 13 * h);
  EXPECT_EQ(parameters(model), 24 * (12 * h * h + 13 * h) + (51200 + 2048) * h + 2 * h);
}

TEST(Architecture, EveryPresetIsValid) {
  for (const std::string_view name : architecture_preset_names()) {
    EXPECT_NO_THROW(check(architecture_preset(name))) << name;
  }
}

TEST(Architecture, WhatDoesNotFitIsRefusedInWords) {
  Architecture model = architecture_preset("llama3-8b");
  model.key_value_heads = 5;
  EXPECT_EQ(refusal([&] { check(model); }).message(),
            "the model \"llama3-8b\": kv_heads has to divide heads = 32");
  model = architecture_preset("mixtral-8x7b");
  model.experts.chosen = 9;
  EXPECT_EQ(refusal([&] { check(model); }).message(),
            "the model \"mixtral-8x7b\": a token goes to 1 to 8 experts, found 9");
  EXPECT_NE(refusal([] { architecture_preset("llama3-80b"); })
                .message()
                .find("(did you mean \"llama3-8b\"?)"),
            std::string::npos);
}

}  // namespace architecture_test
}  // namespace pipewright
