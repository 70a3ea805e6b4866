#include "planner/tensor_placement/factors.hpp"

#include <algorithm>
#include <limits>

namespace pipewright::planner::tensor_placement {
namespace {

std::vector<std::size_t> sizes_of(const Factor& factor, const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> own;
  for (const std::size_t variable : factor.variables) own.push_back(sizes[variable]);
  return own;
}

class Domination {
 public:
  Domination(const FactorGraph& graph, bool time_alone)
      : graph_(graph), time_alone_(time_alone), factors_of_(graph.sizes.size()) {
    for (std::size_t at = 0; at < graph.factors.size(); ++at) {
      for (const std::size_t variable : graph.factors[at].variables) {
        factors_of_[variable].push_back(at);
      }
    }
    for (const std::size_t size : graph.sizes) {
      left_.emplace_back(size);
      for (std::size_t value = 0; value < size; ++value) left_.back()[value] = value;
    }
  }

  std::vector<std::vector<std::size_t>> values() && {
    std::vector<bool> waiting(graph_.sizes.size(), true);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t variable = 0; variable < graph_.sizes.size(); ++variable) {
        if (!waiting[variable]) continue;
        waiting[variable] = false;
        if (!shrink(variable)) continue;
        changed = true;
        for (const std::size_t at : factors_of_[variable]) {
          for (const std::size_t other : graph_.factors[at].variables) waiting[other] = true;
        }
      }
    }
    return std::move(left_);
  }

 private:
  /// The least that value `one` takes more than `other`, over all values of the other variables.
  struct Least {
    std::vector<double> ns, bytes;  // one * values + other
  };

  bool shrink(std::size_t variable) {
    const std::size_t count = left_[variable].size();
    if (count == 1) return false;
    Least sum{std::vector<double>(count * count), std::vector<double>(count * count)};
    for (const std::size_t at : factors_of_[variable]) add_least(graph_.factors[at], variable, sum);
    std::vector<bool> gone(count);
    bool any = false;
    for (std::size_t one = 0; one < count; ++one) {
      for (std::size_t other = 0; other < count && !gone[one]; ++other) {
        if (other == one || gone[other]) continue;
        const std::size_t pair = one * count + other;
        if (sum.ns[pair] >= 0 && (time_alone_ || sum.bytes[pair] >= 0)) gone[one] = any = true;
      }
    }
    std::vector<std::size_t> kept;
    for (std::size_t at = 0; at < count; ++at) {
      if (!gone[at]) kept.push_back(left_[variable][at]);
    }
    left_[variable] = std::move(kept);
    return any;
  }

  void add_least(const Factor& factor, std::size_t variable, Least& sum) const {
    const std::size_t count = left_[variable].size();
    std::vector<std::size_t> strides(factor.variables.size()), others, other_strides;
    std::size_t stride = 1, own = 0;
    for (std::size_t at = factor.variables.size(); at-- > 0;) {
      strides[at] = stride;
      stride *= graph_.sizes[factor.variables[at]];
      if (factor.variables[at] == variable) {
        own = strides[at];
      }
    }
    std::vector<std::size_t> sizes;
    for (std::size_t at = 0; at < factor.variables.size(); ++at) {
      if (factor.variables[at] == variable) continue;
      others.push_back(factor.variables[at]);
      other_strides.push_back(strides[at]);
      sizes.push_back(left_[others.back()].size());
    }
    constexpr double kNever = std::numeric_limits<double>::infinity();
    Least least{std::vector<double>(count * count, kNever),
                std::vector<double>(count * count, kNever)};
    for_each_combination(sizes, [&](const std::vector<std::size_t>& values) {
      std::size_t base = 0;
      for (std::size_t at = 0; at < values.size(); ++at) {
        base += other_strides[at] * left_[others[at]][values[at]];
      }
      for (std::size_t one = 0; one < count; ++one) {
        const std::size_t place = base + own * left_[variable][one];
        for (std::size_t other = 0; other < count; ++other) {
          const std::size_t there = base + own * left_[variable][other], pair = one * count + other;
          least.ns[pair] = std::min(least.ns[pair], factor.ns[place] - factor.ns[there]);
          least.bytes[pair] =
              std::min(least.bytes[pair], factor.bytes[place] - factor.bytes[there]);
        }
      }
    });
    for (std::size_t pair = 0; pair < least.ns.size(); ++pair) {
      sum.ns[pair] += least.ns[pair];
      sum.bytes[pair] += least.bytes[pair];
    }
  }

  const FactorGraph& graph_;
  bool time_alone_;
  std::vector<std::vector<std::size_t>> factors_of_;  // by variable
  std::vector<std::vector<std::size_t>> left_;        // by variable
};

}  // namespace

std::size_t place_in(const Factor& factor, const std::vector<std::size_t>& sizes,
                     const Assignment& assignment) {
  std::size_t place = 0;
  for (const std::size_t variable : factor.variables) {
    place = place * sizes[variable] + assignment[variable];
  }
  return place;
}

Totals totals_of(const FactorGraph& graph, const Assignment& assignment) {
  Totals totals;
  for (const Factor& factor : graph.factors) {
    const std::size_t place = place_in(factor, graph.sizes, assignment);
    totals.ns += factor.ns[place];
    totals.bytes += factor.bytes[place];
  }
  return totals;
}

std::vector<std::vector<std::size_t>> undominated_values(const FactorGraph& graph,
                                                         bool time_alone) {
  return Domination(graph, time_alone).values();
}

FactorGraph restricted(const FactorGraph& graph,
                       const std::vector<std::vector<std::size_t>>& values) {
  FactorGraph result;
  for (const auto& kept : values) result.sizes.push_back(kept.size());
  for (const Factor& factor : graph.factors) {
    Factor less{.variables = factor.variables, .ns = {}, .bytes = {}};
    for_each_combination(sizes_of(less, result.sizes), [&](const std::vector<std::size_t>& at) {
      std::size_t place = 0;
      for (std::size_t i = 0; i < at.size(); ++i) {
        const std::size_t variable = factor.variables[i];
        place = place * graph.sizes[variable] + values[variable][at[i]];
      }
      less.ns.push_back(factor.ns[place]);
      less.bytes.push_back(factor.bytes[place]);
    });
    result.factors.push_back(std::move(less));
  }
  return result;
}

}  // namespace pipewright::planner::tensor_placement
