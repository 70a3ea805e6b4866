// Random graphs, completed and carried out: what each process computes from what it holds, with the
// reshards that completion says, is the whole graph's result; and what holds for every completion.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/spmd/graph/explanation.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "tests/property/spmd/carried_out.hpp"
#include "tests/property/spmd/random_graph.hpp"

namespace pipewright::spmd::test {
namespace completion_test {

using pipewright::test::Draw;

Array values_of_input(const GraphTensor& tensor, std::size_t at) {
  Array array = zeros(tensor.shape);
  for (double& value : array.values) {
    ++at;
    value = static_cast<double>((7 * at * at + at) % 9) - 2;
  }
  return array;
}

/// Everything on one process.
std::vector<Array> serial(const RandomGraph& random) {
  const OperatorGraph& graph = random.graph;
  const auto producers = producers_of(graph);
  std::vector<Array> arrays(graph.tensors.size());
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    if (!producers[at]) arrays[at] = values_of_input(graph.tensors[at], at);
  }
  for (const std::size_t at : ordered_operators(graph)) {
    Computation whole;
    for (const auto& tensor : tensors_of(graph.operators[at].inputs)) {
      whole.inputs.push_back(arrays[*tensor]);
      whole.offsets.emplace_back(arrays[*tensor].shape.size());
    }
    const auto outputs = tensors_of(graph.operators[at].outputs);
    for (const auto& tensor : outputs) whole.outputs.push_back(graph.tensors[*tensor].shape);
    auto made = random.compute[at](whole);
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      arrays[*outputs[place]] = std::move(made[place]);
    }
  }
  return arrays;
}

/// A tensor as it lies from the start: of partial values the first process has all.
State spread(const Array& whole, const Layout& layout, const ProcessMesh& mesh) {
  State state;
  for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
    Held held{local_part({whole.shape, layout}, mesh, place), {}};
    bool is_first = true;
    for (const auto& [dim, reduction] : layout.partial) {
      is_first = is_first && mesh.coordinates(place)[static_cast<std::size_t>(dim)] == 0;
    }
    for_each_element(held.part, [&, first = is_first](const Shape& at, std::size_t) {
      held.values.push_back(first ? whole.at(at) : 0);
    });
    state[mesh.ranks[place]] = std::move(held);
  }
  return state;
}

class Execution {
 public:
  Execution(const RandomGraph& random, const Completion& completion)
      : random_(random), completion_(completion), graph_(completion.graph) {}

  void expect_true() {
    const std::vector<Array> whole = serial(random_);
    const auto producers = producers_of(graph_);
    for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
      if (!producers[at]) states_[at] = spread(whole[at], layout_of_tensor(at), mesh_of_tensor(at));
    }
    for (const std::size_t at : ordered_operators(graph_)) {
      compute(at);
      for (const auto& tensor : tensors_of(graph_.operators[at].outputs)) {
        expect_whole(*tensor, whole[*tensor]);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

 private:
  const Layout& layout_of_tensor(std::size_t at) const {
    return *graph_.tensors[at].annotation.layout;
  }
  const ProcessMesh& mesh_of_tensor(std::size_t at) const {
    return graph_.meshes[*graph_.tensors[at].annotation.mesh].mesh;
  }
  const Shape& shape(std::size_t at) const { return graph_.tensors[at].shape; }

  static Reduction reduction_of(const ReshardStep& step, const Layout& before) {
    const Layout& partial =
        step.kind == ReshardStep::Kind::MakePartial ? step.after.layout : before;
    const auto found = partial.partial.find(step.mesh_dim);
    return found == partial.partial.end() ? Reduction::Sum : found->second;
  }

  State moved(const GraphReshard& reshard, State state) const {
    Layout before = reshard.from;
    for (const ReshardStep& step : reshard.plan.steps) {
      state = carried_out(shape(reshard.tensor), step, state, reduction_of(step, before));
      before = step.after.layout;
    }
    return state;
  }

  /// As the operator takes it: as it lies, unless completion says that it is brought elsewhere.
  State taken(std::size_t tensor, std::size_t at, const Layout& layout) const {
    for (const GraphReshard& one : completion_.reshards) {
      const bool is_it =
          one.tensor == tensor && !one.is_made && one.to == layout &&
          std::find(one.operators.begin(), one.operators.end(), at) != one.operators.end();
      if (is_it) return moved(one, states_.at(tensor));
    }
    EXPECT_EQ(layout, layout_of_tensor(tensor)) << "nothing brings it there";
    EXPECT_EQ(mesh_of_tensor(tensor), graph_.meshes[*graph_.operators[at].annotation.mesh].mesh);
    return states_.at(tensor);
  }

  void compute(std::size_t at) {
    const GraphOperator& one = graph_.operators[at];
    const ProcessMesh& mesh = graph_.meshes[*one.annotation.mesh].mesh;
    const auto inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
    std::vector<State> in, out(outputs.size());
    for (std::size_t place = 0; place < inputs.size(); ++place) {
      in.push_back(taken(*inputs[place], at, *one.annotation.inputs[place]));
    }
    for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
      const int rank = mesh.ranks[place];
      Computation local;
      for (const State& state : in) {
        local.inputs.push_back({state.at(rank).part.shape, state.at(rank).values});
        local.offsets.push_back(state.at(rank).part.offset);
      }
      std::vector<LocalPart> parts;
      for (std::size_t output = 0; output < outputs.size(); ++output) {
        parts.push_back(
            local_part({shape(*outputs[output]), *one.annotation.outputs[output]}, mesh, place));
        local.outputs.push_back(parts.back().shape);
      }
      const auto made = random_.compute[at](local);
      for (std::size_t output = 0; output < outputs.size(); ++output) {
        out[output][rank] = {parts[output], made[output].values};
      }
    }
    for (std::size_t output = 0; output < outputs.size(); ++output) {
      states_[*outputs[output]] = std::move(out[output]);
      for (const GraphReshard& reshard : completion_.reshards) {
        if (reshard.tensor != *outputs[output] || !reshard.is_made) continue;
        states_[*outputs[output]] = moved(reshard, states_[*outputs[output]]);
      }
    }
  }

  /// Each process holds its part of the serial result, or contributions that add up to it.
  void expect_whole(std::size_t tensor, const Array& whole) const {
    const Layout& layout = layout_of_tensor(tensor);
    const ProcessMesh& mesh = mesh_of_tensor(tensor);
    for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
      const LocalPart part = local_part({shape(tensor), layout}, mesh, place);
      const Held& held = states_.at(tensor).at(mesh.ranks[place]);
      ASSERT_EQ(held.part.offset, part.offset);
      ASSERT_EQ(held.part.shape, part.shape);
      std::vector<std::size_t> contributors = {place};
      for (const auto& [dim, reduction] : layout.partial) {
        std::vector<std::size_t> more;
        for (const std::size_t one : contributors) {
          for (const std::size_t other : mesh.line(one, dim)) more.push_back(other);
        }
        contributors = std::move(more);
      }
      for_each_element(part, [&](const Shape& at, std::size_t) {
        double sum = 0;
        for (const std::size_t one : contributors) {
          sum += *find(states_.at(tensor).at(mesh.ranks[one]), at);
        }
        const double wanted = whole.at(at);
        ASSERT_NEAR(sum, wanted, 1e-6 * std::max(1.0, std::abs(wanted)))
            << graph_.tensors[tensor].name;
      });
    }
  }

  const RandomGraph& random_;
  const Completion& completion_;
  const OperatorGraph& graph_;
  std::map<std::size_t, State> states_;
};

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
    Execution(random, *completion).expect_true();
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
