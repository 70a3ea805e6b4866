#include "core/model/architecture.hpp"

#include <gtest/gtest.h>

#include "core/model/architecture_json.hpp"
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
      {"qwen3-30b-a3b", 30.5},  {"qwen3-235b-a22b", 235.1}, {"gpt-oss-20b", 20.91},
      {"gpt-oss-120b", 116.83}, {"llama4-maverick", 400},   {"nemotron-h-8b", 8.1},
      {"nemotron-h-56b", 56.3}, {"nemotron-3-nano", 31.6},  {"nemotron-3-super", 120.6},
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

TEST(Architecture, AKindOfBlockIsByItsPlaceOrByTheLetterOfAPattern) {
  const Architecture llama4 = architecture_preset("llama4-maverick");
  EXPECT_FALSE(llama4.kind_of(0).has_experts());  // every other has them, the second first
  EXPECT_TRUE(llama4.kind_of(47).has_experts());
  const Architecture nano = architecture_preset("nemotron-3-nano");  // MEMEM*…
  EXPECT_EQ(nano.kind_of(0), (BlockKind{Mixer::Mamba, FeedForward::None}));
  EXPECT_EQ(nano.kind_of(1), (BlockKind{Mixer::None, FeedForward::Experts}));
  EXPECT_EQ(nano.kind_of(5), (BlockKind{Mixer::Attention, FeedForward::None}));
  EXPECT_NEAR(active_parameters(nano) / 1e9, 3.6, 0.05);
  EXPECT_NEAR(active_parameters(architecture_preset("nemotron-3-super")) / 1e9, 12.7, 0.1);
  EXPECT_NEAR(active_parameters(llama4) / 1e9, 17.2, 0.1);
}

/// 128 heads of 64 with a state of 128 in 8 groups, of a model 4,096 wide: into it, out of it, a
/// convolution of four with a shift, three numbers a head and a norm.
TEST(Architecture, AMambaBlockHasItsWeights) {
  const Architecture model = architecture_preset("nemotron-h-8b");
  const double inner = 8192, convolved = inner + 2 * 8 * 128;
  EXPECT_EQ(
      block_parameters(model, {Mixer::Mamba, FeedForward::None}),
      4096 + 4096 * (2 * inner + 2 * 8 * 128 + 128 + inner) + 5 * convolved + 3 * 128 + inner);
}

Architecture read(const char* text) {
  const Json document = Json::parse(text);
  return read_architecture(JsonCursor(document, "model.json"));
}

TEST(Architecture, APatternSaysHowManyLayersThereAre) {
  const Architecture model = read(
      R"({"schema": "pipewright.architecture/1", "hidden": 64, "heads": 4, "vocabulary": 100,
          "sequence": 32, "pattern": "M-*E", "mamba": {"heads": 4, "head": 32, "state": 16},
          "experts": {"count": 4, "chosen": 2, "ffn": 64, "latent": 16},
          "attention_window": {"tokens": 8}, "further_tokens": 1})");
  EXPECT_EQ(model.blocks, 4);
  EXPECT_EQ(model.kind_of(2).mixer, Mixer::Window);
  EXPECT_EQ(read(to_json(model).dump().c_str()), model);
}

TEST(Architecture, APatternThatDoesNotFitIsRefused) {
  const auto refused = [](const std::string& more) {
    try {
      read((R"({"schema": "pipewright.architecture/1", "hidden": 64, "heads": 4, "vocabulary": 100,
               "sequence": 32, )" +
            more + "}")
               .c_str());
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  const auto expect = [&](const std::string& more, const std::string& words) {
    EXPECT_NE(refused(more).find(words), std::string::npos) << more << ": " << refused(more);
  };
  expect(R"("pattern": "M-")", "there is no mamba");
  expect(R"("pattern": "*E")", "there are no experts");
  expect(R"("pattern": "*X")", "found \"X\"");
  expect(R"("pattern": "*-", "layers": 3)", "2 letters for 3 layers");
  expect(R"("pattern": "*E", "experts": {"count": 4, "chosen": 2, "ffn": 64, "every": 2})",
         "leave out dense_layers, every and full_every");
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
