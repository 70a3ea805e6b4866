// A tied head: read and written, refused where it fits no table, found in the stages of a cut.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/model/transformer.hpp"
#include "core/plan/tied_stages.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/memory/memory.hpp"

namespace pipewright {
namespace model_tie_test {

Model read(const std::string& text) {
  return read_model(JsonCursor(parse_json(text, "m.json"), "m.json"));
}

Model transformer(bool tied) {
  return read(R"({"schema": "pipewright.model/1", "transformer": {"hidden": 8, "layers": 2,
      "heads": 2, "vocabulary": 32, "sequence": 4, "tied_head": )" +
              std::string(tied ? "true}}" : "false}}"));
}

std::string refusal(const std::string& head) {
  try {
    read(R"({"schema": "pipewright.model/1", "loss": "mse", "sequence": 4, "layers": [
        {"kind": "embedding", "out": 8, "vocabulary": 32}, )" +
         head + "]}");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ModelTie, IsReadAndWritten) {
  const Model model = transformer(true);
  EXPECT_TRUE(transformer_shape_of(model)->tied_head);
  EXPECT_EQ(read(to_json(model).dump()).layers, model.layers);
  EXPECT_TRUE(to_json(model)["transformer"]["tied_head"].get<bool>());
  EXPECT_FALSE(to_json(transformer(false))["transformer"].contains("tied_head"));
  Model listed = model;
  listed.layers[1].name = "renamed";
  EXPECT_EQ(read(to_json(listed).dump()).layers, listed.layers);
}

TEST(ModelTie, FitsTheTableOrIsRefusedInWords) {
  EXPECT_EQ(refusal(R"({"kind": "linear", "out": 32, "tied": true})"), "");
  EXPECT_EQ(
      refusal(R"({"kind": "linear", "out": 16}, {"kind": "linear", "out": 32, "tied": true})"),
      "m.json: /layers: a tied layer goes from the embedding's width to its vocabulary (8 to "
      "32), found 16 to 32");
  EXPECT_EQ(refusal(R"({"kind": "linear", "out": 32, "tied": true},
                       {"kind": "linear", "out": 8}, {"kind": "linear", "out": 32, "tied": true})"),
            "m.json: /layers: expected one tied layer at most, found 2");
  EXPECT_EQ(refusal(R"({"kind": "linear", "out": 32, "tied": true, "bias": true})"),
            "m.json: /layers/1/bias: expected false: a tied layer has the table alone, found true");
  EXPECT_THROW(read(R"({"schema": "pipewright.model/1", "loss": "mse", "layers": [
                       {"kind": "linear", "in": 8, "out": 32, "tied": true}]})"),
               InputError);
}

TEST(ModelTie, LiesInTheStagesThatHoldItsLayers) {
  const Model model = transformer(true);
  const std::vector<StagePlan> cut = {{0, 1, RankId(0)}, {1, 3, RankId(1)}, {3, 4, RankId(2)}};
  EXPECT_EQ(tied_stages(model, cut), (std::vector<StageId>{StageId(0), StageId(2)}));
  EXPECT_TRUE(tied_stages(model, std::vector<StagePlan>{{0, 4, RankId(0)}}).empty());
  EXPECT_TRUE(tied_stages(transformer(false), cut).empty());
}

TEST(ModelTie, IsCountedOnceInTheModelAndInEachStageThatHoldsIt) {
  const Model tied = transformer(true), untied = transformer(false);
  const auto parameters = [](const Model& model, int first, int end) {
    return planner::state_of(model, {first, end, RankId(0)}, "sgd").parameters.value;
  };
  constexpr std::int64_t kTable = 32 * 8 * 4;  // bytes
  EXPECT_EQ(parameters(tied, 0, 4), parameters(untied, 0, 4) - kTable);
  EXPECT_EQ(parameters(tied, 3, 4), parameters(untied, 3, 4));
  const std::vector<StagePlan> cut = {{0, 2, RankId(0)}, {2, 4, RankId(1)}};
  const planner::CostModel costs(tied, cluster_preset("local-cpu", 2), nullptr);
  EXPECT_EQ(costs.table(cut, 2, 1, "sgd").tied_bytes.value, kTable);
}

}  // namespace model_tie_test
}  // namespace pipewright
