#include "planner/tensor_placement/search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pipewright::planner::tensor_placement {
namespace {

/// Variables that branch and bound gives values to before it gives up.
constexpr int kMostExpansions = 30'000;
/// Prices of a byte that are tried.
constexpr int kMostPrices = 24;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Bounds in place of tables do not say what replaces what.
std::vector<std::vector<std::size_t>> kept_values(const PlacementProblem& problem,
                                                  bool time_alone) {
  if (problem.is_exact()) return undominated_values(problem.factors(), time_alone);
  std::vector<std::vector<std::size_t>> all;
  for (const std::size_t size : problem.factors().sizes) {
    std::vector<std::size_t>& values = all.emplace_back(size);
    std::iota(values.begin(), values.end(), std::size_t{0});
  }
  return all;
}

/// The problem without values that others replace, and its assignments as the whole one has them.
class Reduced {
 public:
  Reduced(const PlacementProblem& problem, bool time_alone)
      : values_(kept_values(problem, time_alone)),
        graph_(restricted(problem.factors(), values_)),
        order_(elimination_order(graph_)) {}

  Elimination eliminated(Weights weights) const { return {graph_, order_, weights}; }
  Assignment whole(const Assignment& assignment) const {
    Assignment result;
    for (std::size_t at = 0; at < assignment.size(); ++at) {
      result.push_back(values_[at][assignment[at]]);
    }
    return result;
  }
  std::size_t variables() const { return order_.size(); }

 private:
  std::vector<std::vector<std::size_t>> values_;
  FactorGraph graph_;
  std::vector<std::size_t> order_;
};

/// A quantity that grows with each value, from `start` on, and may not reach `most`.
struct Estimate {
  Elimination elimination;
  double start = 0;
};

class BranchAndBound {
 public:
  BranchAndBound(const PlacementProblem& problem, const Reduced& reduced, double limit_bytes,
                 FoundPlacement& best)
      : problem_(problem), reduced_(reduced), limit_(limit_bytes), best_(best) {}

  /// Of time: an elimination whose bound plus `more` no placement that fits goes below.
  void add_time(Elimination elimination, double more) {
    const double start = elimination.bound() + more;
    times_.push_back({std::move(elimination), start});
  }
  void set_bytes(Elimination elimination) {
    const double start = elimination.bound();
    bytes_.push_back({std::move(elimination), start});
  }

  /// Whether everything was looked at.
  bool run() {
    Assignment assignment(reduced_.variables());
    std::vector<Level> levels = {expanded(0, assignment, starts(times_), starts(bytes_))};
    while (!levels.empty()) {
      Level& level = levels.back();
      const std::size_t depth = levels.size() - 1;
      if (level.next == level.choices.size() || is_pruned(level.choices[level.next])) {
        levels.pop_back();
        continue;
      }
      const Choice& choice = level.choices[level.next++];
      assignment[times_.front().elimination.variable_at(depth)] = choice.value;
      if (depth + 1 == assignment.size()) {
        offer(assignment);
      } else if (++expansions_ > kMostExpansions) {
        return false;
      } else {
        levels.push_back(expanded(depth + 1, assignment, choice.ns, choice.bytes));
      }
    }
    return true;
  }

 private:
  struct Choice {
    std::size_t value = 0;
    std::vector<double> ns, bytes;  // by estimate
    double least_ns = 0;
  };
  struct Level {
    std::vector<Choice> choices;  // by time
    std::size_t next = 0;
  };

  static std::vector<double> starts(const std::vector<Estimate>& estimates) {
    std::vector<double> all;
    for (const Estimate& one : estimates) all.push_back(one.start);
    return all;
  }

  Level expanded(std::size_t depth, Assignment& assignment, const std::vector<double>& ns,
                 const std::vector<double>& bytes) const {
    Level level;
    const auto grow = [&](const std::vector<Estimate>& estimates, const std::vector<double>& before,
                          std::vector<double> Choice::*member) {
      for (std::size_t at = 0; at < estimates.size(); ++at) {
        const std::vector<double> growth = estimates[at].elimination.growth(depth, assignment);
        level.choices.resize(growth.size());
        for (std::size_t value = 0; value < growth.size(); ++value) {
          (level.choices[value].*member).push_back(before[at] + growth[value]);
        }
      }
    };
    grow(times_, ns, &Choice::ns);
    grow(bytes_, bytes, &Choice::bytes);
    for (std::size_t value = 0; value < level.choices.size(); ++value) {
      Choice& choice = level.choices[value];
      choice.value = value;
      choice.least_ns = *std::max_element(choice.ns.begin(), choice.ns.end());
      for (const double least : choice.bytes) {
        if (least > limit_) choice.least_ns = kNever;
      }
    }
    std::stable_sort(
        level.choices.begin(), level.choices.end(),
        [](const Choice& one, const Choice& other) { return one.least_ns < other.least_ns; });
    return level;
  }

  bool is_pruned(const Choice& choice) const {
    if (choice.least_ns == kNever) return true;
    return best_.assignment && is_reached(best_.totals.ns, choice.least_ns);
  }

  void offer(const Assignment& assignment) {
    Assignment whole = reduced_.whole(assignment);
    const Totals totals = problem_.totals(whole);
    if (totals.bytes > limit_ || (best_.assignment && totals.ns >= best_.totals.ns)) return;
    best_.assignment = std::move(whole);
    best_.totals = totals;
  }

  const PlacementProblem& problem_;
  const Reduced& reduced_;
  double limit_;
  FoundPlacement& best_;
  std::vector<Estimate> times_, bytes_;
  int expansions_ = 0;
};

class Search {
 public:
  Search(const PlacementProblem& problem, double limit_bytes)
      : problem_(problem), limit_(limit_bytes) {
    offer(problem.of_completion());
  }

  FoundPlacement found() && {
    FoundPlacement fastest = least_time();
    best_.bound_ns = fastest.bound_ns;
    if (fastest.totals.bytes <= limit_) {
      best_ = std::move(fastest);
    } else {
      find_under_limit();
    }
    if (best_.assignment) best_.bound_ns = std::min(best_.bound_ns, best_.totals.ns);
    return std::move(best_);
  }

 private:
  Totals offer(const Assignment& assignment) {
    const Totals totals = problem_.totals(assignment);
    if (totals.bytes <= limit_ && (!best_.assignment || totals.ns < best_.totals.ns)) {
      best_.assignment = assignment;
      best_.totals = totals;
    }
    return totals;
  }

  static bool is_proven(const FoundPlacement& found) {
    return found.assignment && is_reached(found.totals.ns, found.bound_ns);
  }

  /// Memory left aside.
  FoundPlacement least_time() const {
    const Reduced reduced(problem_, true);
    Elimination least = reduced.eliminated({1, 0});
    FoundPlacement fastest{.assignment = reduced.whole(least.assignment())};
    fastest.totals = problem_.totals(*fastest.assignment);
    fastest.bound_ns = least.bound();
    if (is_proven(fastest)) return fastest;
    BranchAndBound search(problem_, reduced, kNever, fastest);
    search.add_time(std::move(least), 0);
    if (search.run()) fastest.bound_ns = fastest.totals.ns;
    return fastest;
  }

  /// A byte gets a price (Lagrange), so that what is bought fits; the largest bound over all prices
  /// is where two placements cost the same, one that fits and one that does not.
  void find_under_limit() {
    const Reduced reduced(problem_, false);
    Elimination bytes = reduced.eliminated({0, 1});
    Elimination times = reduced.eliminated({1, 0});
    best_.least_bytes = bytes.bound();
    if (bytes.bound() > limit_) return;
    Totals fits = offer(reduced.whole(bytes.assignment()));
    Totals exceeds = offer(reduced.whole(times.assignment()));
    std::optional<Elimination> priced;
    for (int tried = 0; tried < kMostPrices && fits.bytes <= limit_ && exceeds.bytes > limit_;
         ++tried) {
      const double price = (fits.ns - exceeds.ns) / (exceeds.bytes - fits.bytes);
      if (price <= 0) break;
      Elimination one = reduced.eliminated({1, price});
      const double bound = one.bound() - price * limit_;
      const Totals totals = offer(reduced.whole(one.assignment()));
      const bool is_new = !is_reached(fits.ns + price * fits.bytes, one.bound());
      if (!priced || bound > best_.bound_ns) {
        best_.bound_ns = std::max(best_.bound_ns, bound);
        best_.ns_of_a_byte = price;
        priced.emplace(std::move(one));
      }
      if (!is_new) break;
      (totals.bytes <= limit_ ? fits : exceeds) = totals;
    }
    if (is_proven(best_)) return;
    BranchAndBound search(problem_, reduced, limit_, best_);
    if (priced) search.add_time(std::move(*priced), -best_.ns_of_a_byte * limit_);
    search.add_time(std::move(times), 0);
    search.set_bytes(std::move(bytes));
    if (search.run()) best_.bound_ns = best_.assignment ? best_.totals.ns : kNever;
  }

  const PlacementProblem& problem_;
  double limit_;
  FoundPlacement best_;
};

}  // namespace

bool is_reached(double ns, double bound_ns) {
  return ns <= bound_ns + 1e-9 * std::max(1.0, std::abs(ns));
}

FoundPlacement found_placement(const PlacementProblem& problem, double limit_bytes) {
  return Search(problem, limit_bytes).found();
}

std::vector<double> bounds_of_homes(const PlacementProblem& problem, std::size_t tensor,
                                    double limit_bytes, double ns_of_a_byte) {
  const FactorGraph& graph = problem.factors();
  const auto order = elimination_order(graph, problem.variable_of_tensor(tensor));
  const Elimination elimination(graph, order, {1, ns_of_a_byte});
  std::vector<double> bounds = elimination.bounds_of_last();
  for (double& one : bounds) one -= ns_of_a_byte * limit_bytes;
  return bounds;
}

}  // namespace pipewright::planner::tensor_placement
