#include "tests/property/spmd/executed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/property/spmd/carried_out.hpp"

namespace pipewright::spmd::test {
namespace {

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

}  // namespace

void expect_computes_whole(const RandomGraph& random, const Completion& completion) {
  Execution(random, completion).expect_true();
}

}  // namespace pipewright::spmd::test
