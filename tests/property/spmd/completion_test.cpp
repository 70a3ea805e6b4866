// Random graphs, completed and carried out: what each process computes from what it holds, with the
// reshards that completion says, is the whole graph's result; and what holds for every completion.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "tests/property/spmd/executed.hpp"
#include "tests/property/spmd/random_graph.hpp"

namespace pipewright::spmd::test {
namespace completion_test {

using pipewright::test::Draw;

void expect_annotations_kept(const OperatorGraph& before, const OperatorGraph& after) {
  for (std::size_t at = 0; at < before.tensors.size(); ++at) {
    const TensorAnnotation &was = before.tensors[at].annotation, &is = after.tensors[at].annotation;
    EXPECT_TRUE(!was.mesh || was.mesh == is.mesh);
    EXPECT_TRUE(!was.layout || was.layout == is.layout);
    EXPECT_TRUE(!was.chunk_id || was.chunk_id == is.chunk_id);
  }
  for (std::size_t at = 0; at < before.operators.size(); ++at) {
    const OperatorAnnotation &was = before.operators[at].annotation,
                             &is = after.operators[at].annotation;
    EXPECT_TRUE(!was.mesh || was.mesh == is.mesh);
    EXPECT_TRUE(!was.chunk_id || was.chunk_id == is.chunk_id);
    for (std::size_t place = 0; place < was.inputs.size(); ++place) {
      EXPECT_TRUE(!was.inputs[place] || was.inputs[place] == is.inputs[place]);
    }
  }
}

/// What operators take and make is what their rules say.
void expect_rules_followed(const OperatorGraph& graph) {
  for (const GraphOperator& one : graph.operators) {
    std::vector<Layout> inputs, outputs;
    for (const auto& layout : one.annotation.inputs) inputs.push_back(*layout);
    for (const auto& layout : one.annotation.outputs) outputs.push_back(*layout);
    const Inference inference = infer(call_of(
        graph, one, Direction::Forward, graph.meshes[*one.annotation.mesh].mesh, inputs, outputs));
    for (std::size_t place = 0; place < inputs.size(); ++place) {
      EXPECT_EQ(inference.inputs[place].layout, inputs[place]) << one.rule;
    }
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      EXPECT_EQ(inference.outputs[place].layout, outputs[place]) << one.rule;
    }
  }
}

/// The completion with its operators in the order of their names.
Json in_order(const Completion& completion) {
  Json json = to_json(completion);
  auto& operators = json["operators"];
  std::sort(operators.begin(), operators.end(),
            [](const Json& one, const Json& other) { return one.at("name") < other.at("name"); });
  return json;
}

void expect_order_does_not_matter(const OperatorGraph& graph, const Completion& completion,
                                  Draw& draw) {
  OperatorGraph shuffled = graph;
  auto& operators = shuffled.operators;
  for (std::size_t at = operators.size(); at > 1; --at) {
    std::swap(operators[at - 1],
              operators[static_cast<std::size_t>(draw.below(static_cast<int>(at)))]);
  }
  EXPECT_EQ(in_order(completed(shuffled)), in_order(completion));
}

/// Each division of a tensor leads back to an annotation.
void expect_explained(const Completion& completion) {
  for (const GraphTensor& tensor : completion.graph.tensors) {
    const Explanation explanation = explained(completion, tensor.name);
    for (const ExplainedDimension& one : explanation.dimensions) {
      const auto axis = static_cast<std::size_t>(one.axis);
      EXPECT_EQ(one.divided_by.size(), tensor.annotation.layout->dims[axis].size());
      for (const auto& chain : one.divided_by) {
        const Cause::Kind last = chain.back().cause.kind;
        EXPECT_TRUE(last == Cause::Kind::Annotation || last == Cause::Kind::OperatorAnnotation)
            << tensor.name << ": " << text_of(chain.back(), completion.graph);
      }
    }
  }
}

TEST(RandomCompletion, IsWhatTheWholeGraphComputes) {
  int completions = 0, reshards = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const RandomGraph random = random_graph(draw);
    std::optional<Completion> completion;
    try {
      completion = completed(random.graph);
    } catch (const InputError&) {  // annotations that contradict each other
      continue;
    }
    ++completions;
    reshards += static_cast<int>(completion->reshards.size());
    expect_computes_whole(random, *completion);
    expect_annotations_kept(random.graph, completion->graph);
    expect_rules_followed(completion->graph);
    expect_order_does_not_matter(random.graph, *completion, draw);
    expect_explained(*completion);
    const Json once = to_json(*completion);
    EXPECT_EQ(to_json(completed(read_graph(JsonCursor(once, "once")))), once);
    if (::testing::Test::HasFailure()) {
      std::cerr << to_text(to_json(random.graph)) << to_text(once);
      return;
    }
  }
  EXPECT_GT(completions, 1000);
  EXPECT_GT(reshards, completions);
}

}  // namespace completion_test
}  // namespace pipewright::spmd::test
