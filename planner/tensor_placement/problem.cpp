#include "planner/tensor_placement/problem.hpp"

#include <algorithm>
#include <bit>

#include "core/base/error.hpp"
#include "core/order/element_type.hpp"
#include "planner/tensor_placement/elimination.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

constexpr int kMostMeshDims = 3;

/// How one way of an operator takes a tensor: layouts by number, and the mesh dimensions (as bits)
/// along which the gradient is partial.
struct Taking {
  std::size_t layout = 0;
  unsigned partial = 0;
};
using Takings = std::vector<Taking>;  // of all places in which it takes the tensor

/// What several operators take of one tensor, in tables by layout.
class TakenTensor {
 public:
  TakenTensor(const PlacementProblem& problem, std::size_t tensor) : problem_(problem) {
    const LayoutMoves& moves = problem.moves(tensor);
    moves_ = &moves;
    has_gradient_ = problem.has_gradient(tensor);
    for (const spmd::Layout& home : problem.homes(tensor)) homes_.push_back(moves.number(home));
    for (const Taker& taker : problem.takers(tensor)) {
      std::vector<Takings>& ways = takings_.emplace_back();
      for (const OperatorWay& way : problem.ways()[taker.operator_at]) {
        Takings& all = ways.emplace_back();
        for (const std::size_t place : taker.places) {
          const std::size_t layout = moves.number(way.inputs[place]);
          const unsigned partial = way.partial_gradients[place];
          all.push_back({layout, partial});
          gradients_[{layout, partial}] = moves.with_partial(layout, partial);
        }
      }
    }
  }

  const std::vector<std::vector<Takings>>& takings() const { return takings_; }

  /// Once for each layout; where the gradients of several come together they are added first.
  Totals totals(std::size_t home, const std::vector<const Takings*>& taken) {
    seen_.clear();
    for (const Takings* takings : taken) {
      for (const Taking& one : *takings) {
        const auto same = std::find_if(seen_.begin(), seen_.end(), [&](const Taking& other) {
          return other.layout == one.layout;
        });
        if (same == seen_.end()) {
          seen_.push_back(one);
        } else {
          same->partial |= one.partial;
        }
      }
    }
    Totals totals;
    const std::size_t lies = homes_[home], whole = moves_->without_partial(lies);
    for (const Taking& one : seen_) {
      totals.ns += moves_->ns(lies, one.layout);
      if (has_gradient_) totals.ns += moves_->ns(gradient(one), whole);
      if (one.layout != lies) totals.bytes += static_cast<double>(moves_->bytes(one.layout));
    }
    return totals;
  }

 private:
  std::size_t gradient(const Taking& one) {
    const auto [known, fresh] = gradients_.try_emplace({one.layout, one.partial}, 0);
    if (fresh) known->second = moves_->with_partial(one.layout, one.partial);
    return known->second;
  }

  const PlacementProblem& problem_;
  const LayoutMoves* moves_;
  bool has_gradient_ = false;
  std::vector<std::size_t> homes_;             // by number
  std::vector<std::vector<Takings>> takings_;  // by taker, by way
  std::map<std::pair<std::size_t, unsigned>, std::size_t> gradients_;
  std::vector<Taking> seen_;
};

/// Whether all partial values of the tensor are to be reduced in one way, which is its
/// annotation's: moves know no difference.
bool reduces_alike(const spmd::GraphTensor& tensor, const spmd::Layout& layout) {
  if (layout.partial.empty()) return true;
  const spmd::Reduction reduction = layout.partial.begin()->second;
  const auto differs = [&](const auto& one) { return one.second != reduction; };
  const auto& annotated = tensor.annotation.layout;
  return std::ranges::none_of(layout.partial, differs) &&
         !(annotated && std::ranges::any_of(annotated->partial, differs));
}

bool reduces_alike(const spmd::OperatorGraph& graph, std::size_t at, const OperatorWay& way) {
  const auto all_do = [&](const std::vector<std::optional<std::size_t>>& tensors,
                          const std::vector<spmd::Layout>& layouts) {
    for (std::size_t place = 0; place < tensors.size(); ++place) {
      if (tensors[place] && !reduces_alike(graph.tensors[*tensors[place]], layouts[place]))
        return false;
    }
    return true;
  };
  return all_do(tensors_of(graph.operators[at].inputs), way.inputs) &&
         all_do(tensors_of(graph.operators[at].outputs), way.outputs);
}

}  // namespace

spmd::Layout without_partial(spmd::Layout layout) {
  layout.partial.clear();
  return layout;
}

PlacementProblem::PlacementProblem(const spmd::OperatorGraph& graph, const MeshPrices& prices)
    : graph_(graph), prices_(prices), takers_(graph.tensors.size()) {
  if (prices.mesh().dims() > kMostMeshDims) {
    throw InputError("a mesh of " + std::to_string(prices.mesh().dims()) +
                     " dimensions; placements are found on at most 3");
  }
  const spmd::Completion completion = spmd::completed(graph);
  gradients_ = gradients_asked_for(graph, ordered_operators(graph));
  for (std::size_t at = 0; at < graph.operators.size(); ++at) {
    const auto inputs = tensors_of(graph.operators[at].inputs);
    for (std::size_t place = 0; place < inputs.size(); ++place) {
      if (!inputs[place]) continue;
      std::vector<Taker>& takers = takers_[*inputs[place]];
      if (takers.empty() || takers.back().operator_at != at) takers.push_back({at});
      takers.back().places.push_back(place);
    }
  }
  find_moves();
  find_choices(completion.graph);
  find_factors();
}

void PlacementProblem::find_moves() {
  std::map<std::pair<spmd::Shape, std::int64_t>, std::shared_ptr<const LayoutMoves>> known;
  for (const spmd::GraphTensor& tensor : graph_.tensors) {
    const std::int64_t bytes = element_type(tensor.type)->bytes;
    auto& moves = known[{tensor.shape, bytes}];
    if (!moves) moves = std::make_shared<const LayoutMoves>(tensor.shape, bytes, prices_);
    moves_.push_back(moves);
  }
}

void PlacementProblem::find_choices(const spmd::OperatorGraph& completed) {
  for (std::size_t at = 0; at < graph_.operators.size(); ++at) {
    const spmd::GraphOperator& one = completed.operators[at];
    ways_.push_back(ways_of(graph_, at, one, gradients_, prices_));
    auto& ways = ways_.back();
    std::erase_if(ways, [&](const OperatorWay& way) { return !reduces_alike(graph_, at, way); });
    if (ways.empty()) {
      throw InputError("operator \"" + one.name +
                       "\": its annotations mix partial values that are reduced in different ways");
    }
    const auto chosen = std::find_if(ways.begin(), ways.end(), [&](const OperatorWay& way) {
      for (std::size_t place = 0; place < way.inputs.size(); ++place) {
        if (way.inputs[place] != one.annotation.inputs[place].value_or(spmd::Layout{}))
          return false;
      }
      return true;
    });
    of_completion_.push_back(
        chosen == ways.end() ? 0 : static_cast<std::size_t>(chosen - ways.begin()));
  }
  for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
    const spmd::Layout& lies = *completed.tensors[at].annotation.layout;
    std::vector<spmd::Layout>& homes = homes_.emplace_back();
    if (!graph_.tensors[at].annotation.layout) {
      homes = whole_and_divided(graph_.tensors[at].shape, prices_.mesh());
    }
    const auto found = std::find(homes.begin(), homes.end(), lies);
    of_completion_.push_back(static_cast<std::size_t>(found - homes.begin()));
    if (found == homes.end()) homes.push_back(lies);
  }
}

std::int64_t PlacementProblem::home_bytes(std::size_t tensor, const spmd::Layout& home) const {
  const std::int64_t bytes = moves(tensor).bytes(moves(tensor).number(home));
  if (graph_.tensors[tensor].role != spmd::TensorRole::Parameter) return bytes;
  return 2 * bytes + bytes / element_type(graph_.tensors[tensor].type)->bytes * kOptimizerBytes;
}

Totals PlacementProblem::made(std::size_t tensor, const spmd::Layout& home,
                              const spmd::Layout& as_made) const {
  const LayoutMoves& own = moves(tensor);
  const std::size_t from = own.number(as_made), to = own.number(home);
  Totals totals{own.ns(from, to), 0};
  if (gradients_[tensor]) totals.ns += own.ns(own.without_partial(to), own.without_partial(from));
  return totals;
}

std::vector<TakenForm> PlacementProblem::forms(std::size_t tensor,
                                               const Assignment& assignment) const {
  std::vector<TakenForm> forms;
  const LayoutMoves& own = moves(tensor);
  const spmd::Layout& lies = home(tensor, assignment);
  for (const Taker& taker : takers_[tensor]) {
    const OperatorWay& one = way(taker.operator_at, assignment);
    for (const std::size_t place : taker.places) {
      auto form = std::find_if(forms.begin(), forms.end(), [&](const TakenForm& other) {
        return other.layout == one.inputs[place];
      });
      if (form == forms.end()) {
        forms.push_back({.layout = one.inputs[place], .gradient = one.inputs[place]});
        form = std::prev(forms.end());
      }
      for (int dim = 0; one.partial_gradients[place] >> dim != 0; ++dim) {
        if ((one.partial_gradients[place] >> dim & 1U) != 0) {
          form->gradient.partial[dim] = spmd::Reduction::Sum;
        }
      }
      if (form->operators.empty() || form->operators.back() != taker.operator_at) {
        form->operators.push_back(taker.operator_at);
      }
    }
  }
  for (TakenForm& form : forms) {
    const std::size_t layout = own.number(form.layout);
    form.forward_ns = own.ns(own.number(lies), layout);
    if (gradients_[tensor]) {
      form.backward_ns = own.ns(own.number(form.gradient), own.number(without_partial(lies)));
    }
    if (form.layout != lies) form.bytes = own.bytes(layout);
  }
  return forms;
}

Totals PlacementProblem::totals(const Assignment& assignment) const {
  Totals all;
  for (std::size_t at = 0; at < ways_.size(); ++at) {
    const OperatorWay& one = way(at, assignment);
    all.ns += one.ns.forward + one.ns.backward + one.ns.own_collectives;
    const auto outputs = tensors_of(graph_.operators[at].outputs);
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      if (!outputs[place]) continue;
      all.ns += made(*outputs[place], home(*outputs[place], assignment), one.outputs[place]).ns;
    }
  }
  for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
    all.bytes += static_cast<double>(home_bytes(at, home(at, assignment)));
    for (const TakenForm& form : forms(at, assignment)) {
      all.ns += form.forward_ns + form.backward_ns;
      all.bytes += static_cast<double>(form.bytes);
    }
  }
  return all;
}

void PlacementProblem::find_factors() {
  for (const auto& ways : ways_) factors_.sizes.push_back(ways.size());
  for (const auto& homes : homes_) factors_.sizes.push_back(homes.size());
  for (std::size_t at = 0; at < ways_.size(); ++at) {
    Factor computes{.variables = {at}, .ns = {}, .bytes = {}};
    for (const OperatorWay& way : ways_[at]) {
      computes.ns.push_back(way.ns.forward + way.ns.backward + way.ns.own_collectives);
      computes.bytes.push_back(0);
    }
    factors_.factors.push_back(std::move(computes));
    const auto outputs = tensors_of(graph_.operators[at].outputs);
    for (std::size_t place = 0; place < outputs.size(); ++place) {
      if (!outputs[place]) continue;
      Factor makes{.variables = {at, variable_of_tensor(*outputs[place])}, .ns = {}, .bytes = {}};
      for (const OperatorWay& way : ways_[at]) {
        for (const spmd::Layout& home : homes_[*outputs[place]]) {
          makes.ns.push_back(made(*outputs[place], home, way.outputs[place]).ns);
          makes.bytes.push_back(0);
        }
      }
      factors_.factors.push_back(std::move(makes));
    }
  }
  for (std::size_t at = 0; at < graph_.tensors.size(); ++at) {
    Factor lies{.variables = {variable_of_tensor(at)}, .ns = {}, .bytes = {}};
    for (const spmd::Layout& home : homes_[at]) {
      lies.ns.push_back(0);
      lies.bytes.push_back(static_cast<double>(home_bytes(at, home)));
    }
    factors_.factors.push_back(std::move(lies));
    add_taken_factor(at);
  }
}

void PlacementProblem::add_taken_factor(std::size_t tensor) {
  const std::vector<Taker>& takers = takers_[tensor];
  if (takers.empty()) return;
  TakenTensor taken(*this, tensor);
  std::vector<std::size_t> variables = {variable_of_tensor(tensor)};
  double entries = static_cast<double>(homes_[tensor].size());
  for (const Taker& taker : takers) {
    variables.push_back(taker.operator_at);
    entries *= static_cast<double>(ways_[taker.operator_at].size());
  }
  const auto add = [&](const std::vector<std::size_t>& of, const std::vector<std::size_t>& which,
                       double share) {
    Factor factor{.variables = of, .ns = {}, .bytes = {}};
    std::vector<std::size_t> sizes;
    for (const std::size_t variable : of) sizes.push_back(factors_.sizes[variable]);
    std::vector<const Takings*> takings(which.size());
    for_each_combination(sizes, [&](const std::vector<std::size_t>& values) {
      for (std::size_t at = 0; at < which.size(); ++at) {
        takings[at] = &taken.takings()[which[at]][values[at + 1]];
      }
      const Totals totals = taken.totals(values.front(), takings);
      factor.ns.push_back(share * totals.ns);
      factor.bytes.push_back(share * totals.bytes);
    });
    factors_.factors.push_back(std::move(factor));
  };
  if (entries <= static_cast<double>(kMostEntries)) {
    std::vector<std::size_t> all;
    for (std::size_t at = 0; at < takers.size(); ++at) all.push_back(at);
    add(variables, all, 1);
    return;
  }
  // All may take it alike, and then it is brought there once.
  is_exact_ = false;
  for (std::size_t at = 0; at < takers.size(); ++at) {
    add({variables.front(), takers[at].operator_at}, {at}, 1 / static_cast<double>(takers.size()));
  }
}

}  // namespace pipewright::planner::tensor_placement
