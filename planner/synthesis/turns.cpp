#include "planner/synthesis/turns.hpp"

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <utility>

#include "planner/base/towards_middle.hpp"
#include "planner/synthesis/follow_order.hpp"
#include "planner/synthesis/improve.hpp"
#include "planner/synthesis/outcome.hpp"
#include "planner/synthesis/own_times.hpp"
#include "planner/synthesis/tune_rules.hpp"

namespace pipewright::planner::synthesis {
namespace {

/// An order as the search holds it.
struct Turned {
  Sequence sequence;
  std::vector<int> turn;
  std::int64_t value = kNever;
  std::string found_by;
};

class TurnSearch {
 public:
  TurnSearch(const SynthesisRequest& request, Problem problem)
      : request_(request),
        problem_(std::move(problem)),
        evaluator_(problem_),
        bound_(own_bound(problem_)),
        dice_(request.seed) {}

  SynthesisResult run() {
    const std::int64_t budget = std::max<std::int64_t>(0, request_.budget_ns);
    const std::int64_t steps = request_.steps > 0 ? request_.steps : budget / kNanosecondsAStep;
    begin();
    by_length();
    exchange(steps / 10);
    search_order(steps / 2, true);
    exchange(steps / 10);
    search_order(steps / 10 * 3, false);
    return result();
  }

 private:
  bool optimal() const {
    const std::int64_t wanted = request_.wanted_below_ns > 0 ? request_.wanted_below_ns : kNever;
    return std::min(best_.value, wanted) <= bound_;
  }

  /// With the turns of the problem as they are now.
  Search search_from_here() {
    Search search(problem_, bound_);
    search.begin = began_;
    if (request_.wanted_below_ns > 0) search.wanted_below = request_.wanted_below_ns;
    search.keep_beaten = static_cast<std::size_t>(std::max(0, request_.runners_up));
    return search;
  }

  void tell(std::string_view phase) const {
    if (!request_.on_progress) return;
    request_.on_progress({.elapsed_ns = (Search::Clock::now() - began_).count(),
                          .value_ns = best_.value,
                          .lower_bound_ns = bound_,
                          .phase = phase});
  }

  void consider(Turned found, std::string_view phase) {
    if (found.value >= best_.value) return;
    if (!best_.sequence.empty()) beaten_.push_front(std::move(best_));
    if (beaten_.size() > static_cast<std::size_t>(std::max(1, request_.runners_up)))
      beaten_.pop_back();
    best_ = std::move(found);
    tell(phase);
  }

  /// What the request brings and named schedules, with micro-batches by their numbers.
  void begin() {
    Search search = search_from_here();
    search.offered = &pool_;
    for (const auto& [name, order] : request_.starts) offer_start(search, name, order);
    if (request_.named_schedules) named_ = offer_named(search, request_);
    if (pool_.empty()) search.offer(one_by_one(problem_), "one by one", "list scheduling");
    evaluated_ += search.evaluated;
    consider({search.best, problem_.turn, search.best_value, search.found_by}, "named schedules");
  }

  void offer_start(Search& search, const std::string& name, const Order& order) {
    const auto sequence = sequence_of(problem_, order);
    if (sequence && keeps_limits(problem_, *sequence))
      search.offer(*sequence, name, "named schedules");
    const std::vector<int> turn = turn_of(order);
    if (sequence && keeps_turns(order, turn) && is_of_all(turn)) {
      turns_.push_back(turn);
      return;
    }
    if (!differs_as_it_is(request_, order)) return;
    auto timed = time_as_it_is(request_, order);
    if (!timed) return;
    const std::int64_t value = timed->value(request_.objective);
    if (value < start_.value) start_ = {name, value, std::move(timed)};
  }

  bool is_of_all(std::vector<int> turn) const {
    std::ranges::sort(turn);
    std::vector<int> all(at(problem_.micro_batches));
    std::iota(all.begin(), all.end(), 0);
    return turn == all;
  }

  /// Each order to begin with, micro-batches by length, or with the short or the long ones at both
  /// ends.
  void by_length() {
    std::vector<int> ascending(at(problem_.micro_batches));
    std::iota(ascending.begin(), ascending.end(), 0);
    std::ranges::stable_sort(ascending, {}, [&](int k) { return length(k); });
    std::vector<int> descending(ascending.rbegin(), ascending.rend());
    turns_.push_back(ascending);
    turns_.push_back(descending);
    turns_.push_back(towards_the_middle(ascending));
    turns_.push_back(towards_the_middle(descending));
    for (const std::vector<int>& turn : turns_) {
      for (const auto& [name, sequence] : pool_) {
        if (optimal()) return;
        problem_.turn = turn;
        consider({sequence, turn, time(sequence), name}, "named schedules");
      }
    }
  }

  std::int64_t length(int micro_batch) const {
    std::int64_t sum = 0;
    for (std::size_t row = at(micro_batch); row < problem_.own.time.size();
         row += at(problem_.micro_batches))
      sum += problem_.own.time[row];
    return sum;
  }

  std::int64_t time(const Sequence& sequence) {
    ++evaluated_;
    return evaluator_.run(sequence) ? evaluator_.value() : kNever;
  }

  /// Two micro-batches change places, as often as `steps` actions can be timed; what is as good is
  /// kept, too.
  void exchange(std::int64_t steps) {
    const auto m = static_cast<std::uint64_t>(problem_.micro_batches);
    Turned now = best_;
    problem_.turn = now.turn;
    for (std::int64_t left = steps; m > 1 && left >= problem_.timed() && !optimal();
         left -= problem_.timed()) {
      const std::size_t i = dice_() % m, j = (i + 1 + dice_() % (m - 1)) % m;
      std::swap(problem_.turn[i], problem_.turn[j]);
      const std::int64_t value = time(now.sequence);
      if (value > now.value) {
        std::swap(problem_.turn[i], problem_.turn[j]);
        continue;
      }
      now.value = value;
      now.turn = problem_.turn;
      consider(now, "turns");
    }
  }

  /// The phases of every synthesis, for the best turns; rules from the start on, or the best order
  /// alone.
  void search_order(std::int64_t steps, bool rules) {
    problem_.turn = best_.turn;
    Search search = search_from_here();
    search.on_improvement = [&](std::string_view phase) {
      if (search.best_value < best_.value) tell(phase);
    };
    search.offer(best_.sequence, best_.found_by, "named schedules");
    if (rules) tune_rules(search, dice_, steps / 2);
    follow_order(search, dice_, rules ? steps / 10 * 4 : steps / 2);
    improve(search, dice_, rules ? steps / 10 : steps / 2);
    evaluated_ += search.evaluated;
    for (auto before = search.beaten.rbegin(); before != search.beaten.rend(); ++before)
      consider({*before, problem_.turn, time(*before), search.found_by}, "moves");
    consider({search.best, problem_.turn, search.best_value, search.found_by}, "moves");
  }

  SynthesisResult result() {
    problem_.turn = best_.turn;
    Search search = search_from_here();
    search.offer(best_.sequence, best_.found_by, "moves");
    search.evaluated = evaluated_;
    SynthesisResult result = result_of(search);
    result.objective = request_.objective;
    for (const Turned& before : beaten_) {
      if (result.runners_up.size() >= search.keep_beaten) break;
      problem_.turn = before.turn;
      result.runners_up.push_back(order_of(problem_, before.sequence));
    }
    if (!named_.name.empty()) {
      result.best_named = named_.name;
      result.best_named_ns = named_.value;
      result.best_named_chunks = problem_.stages / problem_.ranks;
    }
    for (NamedBest* one : {&named_, &start_}) {
      if (one->as_it_is && one->value < result.value_ns) take_named(result, request_, *one);
    }
    return result;
  }

  const SynthesisRequest& request_;
  Problem problem_;
  Evaluator evaluator_;
  std::int64_t bound_;
  std::mt19937_64 dice_;
  Search::Clock::time_point began_ = Search::Clock::now();
  std::vector<std::pair<std::string, Sequence>> pool_;  // to begin with
  std::vector<std::vector<int>> turns_;                 // to try with each of them
  NamedBest named_, start_;  // start_: the best of the request's starts that no sequence holds
  Turned best_;
  std::deque<Turned> beaten_;  // were the best, the last first
  std::int64_t evaluated_ = 0;
};

}  // namespace

SynthesisResult search_turns(const SynthesisRequest& request) {
  Problem problem = problem_of(request);
  if (auto least = limits_too_low(problem); !least.empty()) {
    SynthesisResult nothing;
    nothing.objective = request.objective;
    nothing.least_limit = std::move(least);
    return nothing;
  }
  return TurnSearch(request, std::move(problem)).run();
}

}  // namespace pipewright::planner::synthesis
