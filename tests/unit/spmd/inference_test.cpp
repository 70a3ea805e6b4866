// What follows from an operator's letters: divisions merged, sums left, contradictions refused.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/spmd/inference.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace inference_test {

using Mapping = std::vector<std::vector<int>>;

TensorArgument tensor(Shape shape, Mapping dims) {
  return {
      .tensors = {{.shape = std::move(shape), .layout = {.dims = std::move(dims), .partial = {}}}}};
}

OperatorCall call(std::string name, std::vector<TensorArgument> tensors,
                  std::vector<Attribute> attributes = {}) {
  return {.name = std::move(name),
          .direction = Direction::Forward,
          .mesh = ProcessMesh::of_shape({2, 2}),
          .tensors = std::move(tensors),
          .attributes = std::move(attributes)};
}

OperatorCall backward(OperatorCall forward) {
  forward.direction = Direction::Backward;
  return forward;
}

/// "S0 R | R S1 -> S0 S1": placements of inputs and outputs.
std::string text(const OperatorCall& call) {
  const Inference inference = infer(call);
  std::string line;
  const auto add = [&](const std::vector<PlacedLayout>& layouts) {
    for (std::size_t at = 0; at < layouts.size(); ++at) {
      line += at == 0 ? "" : "| ";
      for (const Placement& placement : placements_of(layouts[at].layout, call.mesh)) {
        line += text_of(placement) + " ";
      }
    }
  };
  add(inference.inputs);
  line += "-> ";
  add(inference.outputs);
  line.pop_back();
  return line;
}

std::string refusal(const OperatorCall& call) {
  try {
    return text(call);
  } catch (const InputError& error) {
    return error.what();
  }
}

const Mapping kWhole2 = {{}, {}};

TEST(Inference, DividesAProductByRowsAndColumns) {
  EXPECT_EQ(text(call("matmul", {tensor({8, 4}, {{0}, {}}), tensor({4, 6}, {{}, {1}})})),
            "S0 R | R S1 -> S0 S1");
}

TEST(Inference, LeavesASumWhereTheSummedDimensionIsDivided) {
  EXPECT_EQ(text(call("matmul", {tensor({8, 4}, {{}, {1}}), tensor({4, 6}, kWhole2)})),
            "R S1 | R S0 -> R P(sum)");
  EXPECT_EQ(text(call("max", {tensor({8, 4}, {{}, {1}})}, {std::vector<std::int64_t>{1}})),
            "R S1 -> R P(max)");
  EXPECT_EQ(text(call("logsumexp", {tensor({8, 4}, {{0}, {}})}, {std::vector<std::int64_t>{0}})),
            "S0 R -> P(logsumexp) R");
}

TEST(Inference, DividesASummedDimensionByAllThatDivideIt) {
  EXPECT_EQ(text(call("matmul", {tensor({8, 4}, {{}, {0}}), tensor({4, 6}, {{1}, {}})})),
            "S1 S1 | S0 S0 -> P(sum) P(sum)");
}

TEST(Inference, HearsABroadcastTensorAtItsOwnDimensions) {
  EXPECT_EQ(text(call("add", {tensor({8, 4}, {{0}, {}}), tensor({4}, {{1}})})),
            "S0 S1 | R S0 -> S0 S1");
  EXPECT_EQ(text(call("add", {tensor({8, 1}, {{0}, {}}), tensor({8, 4}, {{}, {1}})})),
            "S0 R | S0 S1 -> S0 S1");
}

TEST(Inference, GathersWhatEachProcessNeedsWhole) {
  EXPECT_EQ(text(call("softmax", {tensor({8, 4}, {{0}, {1}})}, {std::int64_t{-1}})),
            "S0 R -> S0 R");
  EXPECT_EQ(
      text(call("layer_norm", {tensor({8, 4}, {{0}, {1}}), tensor({4}, {{0}}), tensor({4}, {{}})},
                {1e-5, std::int64_t{1}})),
      "S0 R | R R | R R -> S0 R | S0 R | S0 R");
}

OperatorCall grouped(std::int64_t heads, std::int64_t heads_of_keys) {
  const Shape keys = {4, 16, heads_of_keys, 8};
  return call("flash_attention",
              {tensor({4, 16, heads, 8}, {{0}, {}, {1}, {}}), tensor(keys, {{}, {}, {}, {}}),
               tensor(keys, {{}, {}, {}, {}}), tensor({}, {}), tensor({}, {})});
}

TEST(Inference, DividesHeadsInGroupsAsFarAsKeysHaveThem) {
  EXPECT_EQ(text(grouped(8, 2)),
            "S0 S2 | S0 S2 | S0 S2 | R R | R R -> S0 S2 | S0 S1 | S0 S1 | R R");
  EXPECT_EQ(text(grouped(6, 3)), "S0 R | S0 R | S0 R | R R | R R -> S0 R | S0 R | S0 R | R R");
  EXPECT_EQ(text(grouped(8, 1)), "S0 S2 | S0 R | S0 R | R R | R R -> S0 S2 | S0 S1 | S0 S1 | R R")
      << "one head serves all";
  EXPECT_EQ(refusal(grouped(8, 3)),
            "flash_attention: q has 8 heads, which is no multiple of k's 3");
  const TensorArgument q = tensor({4, 8, 16, 8}, {{0}, {1}, {}, {}}),
                       k = tensor({4, 2, 16, 8}, {{}, {}, {}, {}}),
                       mask = tensor({1, 8, 16, 16}, {{}, {}, {}, {}});
  EXPECT_EQ(text(call("scaled_dot_product_attention", {q, k, k, mask})),
            "S0 S1 | S0 S1 | S0 S1 | R S1 -> S0 S1");
}

TEST(Inference, NormalisesRowsThatLieWhole) {
  const TensorArgument x = tensor({8, 4, 16}, {{0}, {}, {1}}), scale = tensor({16}, {{1}});
  EXPECT_EQ(text(call("rms_norm", {x, scale})), "S0 R | R R -> S0 R | S0 R");
  const TensorArgument out = tensor({8, 4, 16}, {{}, {0}, {}}), inverse = tensor({8, 4}, {{1}, {}});
  EXPECT_EQ(text(backward(call("rms_norm", {x, scale, out, inverse}))),
            "S1 S0 | R R -> S1 S0 | S1 S0");
}

TEST(Inference, SumsAnIndexBeforeItChooses) {
  TensorArgument index = tensor({8}, {{0}});
  index.tensors.front().layout.partial[1] = Reduction::Sum;
  EXPECT_EQ(text(call("gather", {tensor({4, 6}, kWhole2), index}, {std::int64_t{0}})),
            "R R | S0 R -> S0 R");
}

TEST(Inference, FollowsDimensionsThroughAnotherShape) {
  EXPECT_EQ(text(call("reshape", {tensor({8, 6}, {{0}, {1}})}, {std::vector<std::int64_t>{48}})),
            "S0 S0 -> S0 S0");
  EXPECT_EQ(
      text(call("reshape", {tensor({8, 6}, {{0}, {1}})}, {std::vector<std::int64_t>{0, 2, -1}})),
      "S0 S1 -> S0 S1");
  EXPECT_EQ(
      text(call("reshape", {tensor({8, 6}, {{0}, {1}})}, {std::vector<std::int64_t>{8, 3, 2}})),
      "S0 R -> S0 R");  // three rows do not divide by two
}

TEST(Inference, RunsFromOutputsToInputs) {
  EXPECT_EQ(text(backward(call("matmul", {tensor({8, 4}, kWhole2), tensor({4, 6}, kWhole2),
                                          tensor({8, 6}, {{1}, {0}})}))),
            "R S0 | S1 R -> S1 S0");
  EXPECT_EQ(text(backward(call("transpose", {tensor({8, 4}, kWhole2), tensor({4, 8}, {{0}, {}})},
                               {std::vector<std::int64_t>{1, 0}}))),
            "S1 R -> S0 R");
}

TEST(Inference, AlignsTheJoinedWithTheFewestMoves) {
  TensorArgument parts{.tensors = {}, .is_list = true};
  parts.tensors = {tensor({8, 4}, {{}, {1}}).tensors[0], tensor({2, 4}, {{}, {}}).tensors[0]};
  EXPECT_EQ(text(call("concat", {parts}, {std::int64_t{0}})), "R S1 | R S1 -> R S1");
}

TEST(Inference, NamesOperatorAndTensorsOfAContradiction) {
  EXPECT_EQ(refusal(call("add", {tensor({8, 4}, {{0}, {}}), tensor({8, 4}, {{1}, {}})})),
            "add: mesh dimension 0 divides dimension 0 of x, mesh dimension 1 divides dimension 0 "
            "of y, and the two dimensions are one");
  EXPECT_EQ(refusal(call("embedding", {tensor({8}, {{0}}), tensor({4, 6}, {{0}, {}})})),
            "embedding: mesh dimension 0 divides dimension 0 of x and dimension 0 of weight, which "
            "are two dimensions");
  EXPECT_EQ(refusal(call("conv2d", {tensor({8, 4, 5, 5}, {{}, {0}, {}, {}}),
                                    tensor({6, 4, 3, 3}, {{}, {}, {}, {}})})),
            "conv2d: dimension 1 of input is divided by mesh dimension 0, and dimension 1 of "
            "filter by nothing; they have to be divided alike");
}

TEST(Inference, RefusesCallsThatDoNotFit) {
  EXPECT_EQ(refusal(call("matmul", {tensor({8, 4}, kWhole2)})),
            "matmul: takes x, y, found 1 tensors");
  EXPECT_EQ(refusal(call("matmul", {tensor({8, 4}, kWhole2), tensor({5, 6}, kWhole2)})),
            "matmul: x has 4 elements in the dimension that is summed, y 5");
  EXPECT_EQ(refusal(call("relu", {tensor({8, 4}, {{0}})})),
            "relu: x: has 2 dimensions, and its dims_mapping 1 entries");
  EXPECT_EQ(refusal(call("softmax", {tensor({8, 4}, kWhole2)}, {std::int64_t{2}})),
            "softmax: axis: dimension 2 of a tensor that has 2");
  EXPECT_EQ(refusal(call("softmax", {tensor({8, 4}, kWhole2)}, {std::string("last")})),
            "softmax: axis: expected a whole number, found a text");
  EXPECT_EQ(refusal(call("softmaks", {tensor({8, 4}, kWhole2)})),
            "there is no operator \"softmaks\" (did you mean \"softmax\"?)");
}

TEST(Operators, StandOnceAndHaveTheirParts) {
  for (const std::string_view name : operator_names()) {
    const Operator& row = operator_named(name);
    EXPECT_FALSE(row.inputs.empty()) << name;
    EXPECT_FALSE(row.outputs.empty()) << name;
    EXPECT_NE(row.equation, nullptr) << name;
    if (row.backward_is.empty()) continue;
    EXPECT_NO_THROW(operator_named(row.backward_is)) << name;
  }
}

}  // namespace inference_test
}  // namespace pipewright::spmd
