#include "core/model/architecture_model.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/model/architecture_json.hpp"
#include "core/model/weights.hpp"

namespace pipewright {
namespace architecture_model_test {

double weights_of(const Model& model) {
  double sum = 0;
  for (const Layer& layer : model.layers) sum += parameter_count(layer);
  return sum;
}

TEST(ArchitectureModel, LayersHoldTheWeightsOfTheArchitecture) {
  for (const std::string_view name : architecture_preset_names()) {
    const Architecture architecture = architecture_preset(name);
    const Model model = model_of(architecture);
    ASSERT_EQ(model.layers.size(), static_cast<std::size_t>(architecture.blocks) + 2) << name;
    // The executor's norms have shifts and its attention biases, which some of these have not.
    EXPECT_NEAR(weights_of(model) / parameters(architecture), 1, 1e-4) << name;
    EXPECT_EQ(model.bytes_per_element, 2);
  }
}

TEST(ArchitectureModel, EachPresetIsATransformerThatCanBeTrainedAndComesBackAsItself) {
  for (const std::string_view name : architecture_preset_names()) {
    const Architecture architecture = architecture_preset(name);
    // Heads of another width than their part of a row, biases in gated layers, windows, experts in
    // some layers only, Mamba: no executor's layers.
    const bool is_estimated_only = name.starts_with("qwen3") || name.starts_with("gpt-oss") ||
                                   name.starts_with("nemotron") || name.starts_with("llama4");
    ASSERT_EQ(can_be_trained(architecture), !is_estimated_only) << name;
    if (is_estimated_only) continue;
    const auto again = architecture_of(model_of(architecture));
    ASSERT_TRUE(again) << name;
    EXPECT_EQ(*again, architecture) << name;
  }
  for (const char* name : {"llama-tiny", "mixtral-tiny", "deepseek-tiny"})
    EXPECT_TRUE(architecture_of(model_preset(name))) << name;
  EXPECT_FALSE(architecture_of(model_preset("mlp")));
}

/// A gated GPT, which no executor's layer is.
Architecture in_between() {
  Architecture model = architecture_preset("llama3-70b");
  model.biases = true;
  return model;
}

TEST(ArchitectureModel, OperationsOfABlockAreTwoAWeightAndTheScores) {
  // arXiv:2205.05198, appendix A: forward of a layer, 24 b s h^2 + 4 b s^2 h; a causal mask halves
  // the second part.
  const Architecture gated = in_between();
  ASSERT_FALSE(can_be_trained(gated));
  const Model model = model_of(gated);
  EXPECT_FALSE(architecture_of(model));
  const Layer& block = model.layers[1];
  EXPECT_NEAR(block.custom.operations,
              2 * (block_parameters(gated, kDenseBlock)) + 2.0 * gated.sequence * gated.hidden,
              1e-4 * block.custom.operations);
  // Of experts only the chosen ones count.
  Architecture mixture = gated;
  mixture.experts = architecture_preset("mixtral-8x7b").experts;
  const Layer routed = model_of(mixture).layers[1];
  EXPECT_LT(routed.custom.operations, 2 * static_cast<double>(routed.custom.weights));
  EXPECT_GT(routed.custom.operations, 2 * mixture.experts.chosen * expert_parameters(mixture));
}

TEST(ArchitectureModel, EitherKindOfFileIsReadAndWrittenAsItself) {
  for (const Json& document :
       {to_json(architecture_preset("llama3-8b")), to_json(model_preset("gpt-tiny"))}) {
    const DescribedModel described = read_described_model(JsonCursor(document, "model.json"));
    EXPECT_EQ(described_model_json(described.model, described.architecture), document);
  }
}

}  // namespace architecture_model_test
}  // namespace pipewright
