#include "planner/balance/dealing.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/base/error.hpp"
#include "planner/base/towards_middle.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

/// Comparisons of exchanges, and instructions simulated while orders are tried: some seconds.
constexpr std::int64_t kMostComparisons = 100'000'000, kMostInstructions = 20'000'000;
constexpr std::int64_t kLeastRounds = 20, kMostRounds = 500;

/// What the ranks of a replica have to do.
class Spread {
 public:
  explicit Spread(const Loads& loads)
      : loads_(loads),
        of_replica_(static_cast<std::size_t>(loads.shape().replicas)),
        busy_(of_replica_.size(),
              std::vector<double>(static_cast<std::size_t>(loads.shape().ranks), 0)) {}

  /// Longest first, to the replica whose busiest rank then has least to do.
  void fill() {
    std::vector<int> longest = loads_.as_it_is();
    std::ranges::stable_sort(longest, std::greater(), [&](int m) { return length(m); });
    for (const int m : longest) {
      int best = -1;
      double least = 0;
      for (int r = 0; r < loads_.shape().replicas; ++r) {
        if (static_cast<int>(own(r).size()) == loads_.shape().micro_batches) continue;
        const double busiest = busiest_with(r, m, -1);
        if (best >= 0 && busiest >= least) continue;
        best = r;
        least = busiest;
      }
      add(best, m, 1);
      own(best).push_back(m);
    }
  }

  /// Exchanges of two that make the busiest replica, and the other one, less busy than it was.
  void exchange() {
    const int replicas = loads_.shape().replicas;
    std::int64_t comparisons = 0;
    while (comparisons < kMostComparisons) {
      int first = 0;
      for (int r = 1; r < replicas; ++r)
        if (busiest(r) > busiest(first)) first = r;
      double least = busiest(first);
      int other = -1;
      std::size_t mine = 0, theirs = 0;
      for (int r = 0; r < replicas; ++r) {
        if (r == first) continue;
        for (std::size_t i = 0; i < own(first).size(); ++i) {
          for (std::size_t j = 0; j < own(r).size(); ++j) {
            const int a = own(first)[i], b = own(r)[j];
            const double both = std::max(busiest_with(first, b, a), busiest_with(r, a, b));
            comparisons += loads_.shape().ranks;
            if (both >= least * (1 - 1e-9)) continue;
            least = both;
            other = r;
            mine = i;
            theirs = j;
          }
        }
      }
      if (other < 0) return;
      int &a = own(first)[mine], &b = own(other)[theirs];
      add(first, a, -1);
      add(first, b, 1);
      add(other, b, -1);
      add(other, a, 1);
      std::swap(a, b);
    }
  }

  /// Of a micro-batch, on all ranks.
  double length(int m) const {
    double sum = 0;
    for (int q = 0; q < loads_.shape().ranks; ++q)
      sum += loads_.time(m, 0, q) / loads_.slowness(0, q);
    return sum;
  }
  const std::vector<int>& of_replica(int r) const {
    return of_replica_[static_cast<std::size_t>(r)];
  }

 private:
  std::vector<int>& own(int r) { return of_replica_[static_cast<std::size_t>(r)]; }
  void add(int r, int m, int sign) {
    for (int q = 0; q < loads_.shape().ranks; ++q)
      busy_[static_cast<std::size_t>(r)][static_cast<std::size_t>(q)] +=
          sign * loads_.time(m, r, q);
  }
  double busiest(int r) const {
    return *std::ranges::max_element(busy_[static_cast<std::size_t>(r)]);
  }
  /// With one more, and without another (-1: none).
  double busiest_with(int r, int more, int less) const {
    double most = 0;
    for (int q = 0; q < loads_.shape().ranks; ++q) {
      const double without = less < 0 ? 0 : loads_.time(less, r, q);
      most = std::max(most, busy_[static_cast<std::size_t>(r)][static_cast<std::size_t>(q)] +
                                loads_.time(more, r, q) - without);
    }
    return most;
  }

  const Loads& loads_;
  std::vector<std::vector<int>> of_replica_;
  std::vector<std::vector<double>> busy_;  // by replica and rank
};

/// Simulates dealings; what a replica computes does not depend on what others do.
class Trials {
 public:
  Trials(const Program& program, const CostTable& costs, const Loads& loads)
      : program_(program), costs_(costs), loads_(loads) {}

  std::vector<std::int64_t> ends(const Dealing& dealing) {
    ++simulated_;
    const std::vector<std::int64_t> times = loads_.compute_ns(dealing);
    const sim::Result result = sim::simulate(program_, costs_, {.compute_ns = times});
    if (!result.finished) throw Bug("a step that ends got stuck with other times");
    return loads_.ends(result.timeline);
  }
  int simulated() const { return simulated_; }

 private:
  const Program& program_;
  const CostTable& costs_;
  const Loads& loads_;
  int simulated_ = 0;
};

/// Takes of each replica the better of two dealings.
void keep_better(const Dealing& other, const std::vector<std::int64_t>& other_ends,
                 Dealing& dealing, std::vector<std::int64_t>& ends) {
  const std::size_t each = dealing.size() / ends.size();
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (other_ends[r] >= ends[r]) continue;
    ends[r] = other_ends[r];
    const auto from = static_cast<std::ptrdiff_t>(r * each);
    std::copy_n(other.begin() + from, each, dealing.begin() + from);
  }
}

Dealing dealing_of(const Spread& spread, int replicas,
                   const std::function<std::vector<int>(std::vector<int>)>& ordered) {
  Dealing dealing;
  for (int r = 0; r < replicas; ++r) {
    const std::vector<int> own = ordered(spread.of_replica(r));
    dealing.insert(dealing.end(), own.begin(), own.end());
  }
  return dealing;
}

/// Each replica tries the exchange of two of its micro-batches in each round, and keeps it where it
/// then ends earlier, until none of all exchanges helps.
void improve_orders(Trials& trials, std::int64_t rounds, Dealing& dealing,
                    std::vector<std::int64_t>& ends) {
  const std::size_t each = dealing.size() / ends.size();
  std::vector<std::pair<std::size_t, std::size_t>> exchanges;
  for (std::size_t apart = 1; apart < each; ++apart) {
    for (std::size_t i = 0; i + apart < each; ++i) exchanges.emplace_back(i, i + apart);
  }
  std::size_t without_gain = 0;
  for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
    if (without_gain >= exchanges.size()) return;
    const auto [i, j] = exchanges[round % exchanges.size()];
    Dealing tried = dealing;
    for (std::size_t r = 0; r < ends.size(); ++r)
      std::swap(tried[r * each + i], tried[r * each + j]);
    const std::int64_t before = std::accumulate(ends.begin(), ends.end(), std::int64_t{0});
    keep_better(tried, trials.ends(tried), dealing, ends);
    const bool gained = std::accumulate(ends.begin(), ends.end(), std::int64_t{0}) < before;
    without_gain = gained ? 0 : without_gain + 1;
  }
}

std::int64_t least_of(const Loads& loads) {
  const ReplicaShape& shape = loads.shape();
  double least = 0;
  for (int q = 0; q < shape.ranks; ++q) {
    std::vector<double> work;
    for (int m = 0; m < shape.replicas * shape.micro_batches; ++m)
      work.push_back(loads.time(m, 0, q) / loads.slowness(0, q));
    std::ranges::sort(work);
    double speed = 0, slowest = 0;
    for (int r = 0; r < shape.replicas; ++r) {
      speed += 1 / loads.slowness(r, q);
      slowest = std::max(slowest, loads.slowness(r, q));
    }
    const auto of_slowest = work.begin() + shape.micro_batches;
    least = std::max({least, std::accumulate(work.begin(), work.end(), 0.0) / speed,
                      std::accumulate(work.begin(), of_slowest, 0.0) * slowest});
  }
  return static_cast<std::int64_t>(std::floor(least));
}

}  // namespace

std::int64_t Dealt::slowest_before() const { return *std::ranges::max_element(before_ns); }
std::int64_t Dealt::slowest_after() const { return *std::ranges::max_element(after_ns); }

Dealt deal_out(const Program& program, const CostTable& costs, const Loads& loads) {
  Trials trials(program, costs, loads);
  Spread spread(loads);
  spread.fill();
  spread.exchange();
  const auto by_length = [&](std::vector<int> own) {
    std::ranges::stable_sort(own, {}, [&](int m) { return spread.length(m); });
    return own;
  };
  const auto descending = [&](std::vector<int> own) {
    own = by_length(std::move(own));
    std::ranges::reverse(own);
    return own;
  };
  const int replicas = loads.shape().replicas;
  Dealing dealing = dealing_of(spread, replicas, by_length);
  std::vector<std::int64_t> ends = trials.ends(dealing);
  for (const std::function<std::vector<int>(std::vector<int>)>& ordered :
       {std::function<std::vector<int>(std::vector<int>)>(descending),
        {[&](std::vector<int> own) { return towards_the_middle(by_length(std::move(own))); }},
        {[&](std::vector<int> own) { return towards_the_middle(descending(std::move(own))); }}}) {
    const Dealing other = dealing_of(spread, replicas, ordered);
    keep_better(other, trials.ends(other), dealing, ends);
  }
  const std::int64_t rounds =
      std::clamp(kMostInstructions / static_cast<std::int64_t>(program.code.size()), kLeastRounds,
                 kMostRounds);
  improve_orders(trials, rounds, dealing, ends);
  Dealt dealt{loads.as_it_is(), {}, {}, least_of(loads), 0};
  dealt.before_ns = dealt.after_ns = trials.ends(dealt.dealing);
  if (*std::ranges::max_element(ends) < dealt.slowest_before()) {
    dealt.dealing = std::move(dealing);
    dealt.after_ns = std::move(ends);
  }
  dealt.simulated = trials.simulated();
  return dealt;
}

}  // namespace pipewright::planner
