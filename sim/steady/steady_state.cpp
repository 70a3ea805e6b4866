#include "sim/steady/steady_state.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pipewright::sim {
namespace {

class StateSearch {
 public:
  StateSearch(const Program& program, const CostTable& costs, const Timeline& timeline)
      : program_(program), timeline_(timeline) {
    for (const Route& route : program.routes)
      route_ns_.push_back(costs.transfer_time(route, program.ranks()).value);
    last_end_.resize(program.code.size());
    first_move_.resize(program.code.size());
    for (std::size_t r = 0; r + 1 < program.rank_begin.size(); ++r) fill_rank(r);
  }

  struct Found {
    std::size_t periods = 0;
    std::int64_t from = 0, to = 0;  // the two moments
  };
  /// Two moments in a phase, as near to each other as they are equal. Towards its end what follows
  /// may be felt already, and towards its beginning what was before, so a few places are tried.
  std::optional<Found> find(const Phase& phase) const {
    const Middle& middle = phase.front();
    std::size_t first = middle.begin;
    while (!is_compute(program_.code[first].kind)) ++first;
    const auto moment = [&](std::size_t k) { return timeline_.end[first + k * middle.period]; };
    std::size_t last = (middle.end - 1 - first) / middle.period, least = 0;
    while (last > 0 && !is_inside(phase, moment(last))) --last;
    while (least < last && !is_inside(phase, moment(least))) ++least;
    for (const std::size_t quarters : {3U, 2U, 4U}) {
      const std::size_t to = least + (last - least) * quarters / 4;
      for (std::size_t k = 1; k <= to - least; ++k) {
        if (equal(phase, moment(to - k), moment(to), k))
          return Found{k, moment(to - k), moment(to)};
      }
    }
    return std::nullopt;
  }

  /// The first instruction of a rank that has not ended.
  std::size_t first_open(std::size_t rank, std::int64_t now) const {
    return first_behind(last_end_, rank, now);
  }

 private:
  /// last_end_: the last end up to here; first_move_: the first beginning from here on. Both rise.
  void fill_rank(std::size_t rank) {
    const std::size_t begin = program_.rank_begin[rank], end = program_.rank_begin[rank + 1];
    std::int64_t last = std::numeric_limits<std::int64_t>::min();
    for (std::size_t id = begin; id < end; ++id)
      last_end_[id] = last = std::max(last, timeline_.end[id]);
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (std::size_t id = end; id-- > begin;)
      first_move_[id] = first = std::min({first, timeline_.moving[id], timeline_.end[id]});
  }

  std::size_t first_behind(const std::vector<std::int64_t>& rising, std::size_t rank,
                           std::int64_t now) const {
    const auto begin = rising.begin() + program_.rank_begin[rank];
    const auto end = rising.begin() + program_.rank_begin[rank + 1];
    return static_cast<std::size_t>(std::upper_bound(begin, end, now) - rising.begin());
  }
  /// Behind the last instruction of a rank of which anything has happened.
  std::size_t first_untouched(std::size_t rank, std::int64_t now) const {
    return first_behind(first_move_, rank, now);
  }

  /// All that is open and touched lies in the phase, and each rank has computed something.
  bool is_inside(const Phase& phase, std::int64_t now) const {
    for (std::size_t r = 0; r < phase.size(); ++r) {
      const std::size_t open = first_open(r, now);
      if (open < phase[r].begin || first_untouched(r, now) > phase[r].end) return false;
      const auto begin = program_.code.begin() + program_.rank_begin[r];
      if (std::none_of(begin, program_.code.begin() + static_cast<std::ptrdiff_t>(open),
                       [](const Instruction& in) { return is_compute(in.kind); }))
        return false;
    }
    return true;
  }

  static constexpr std::int64_t kDone = -1, kUntouched = -2;
  /// kDone, kUntouched, or for how long it has been under way.
  std::int64_t state(std::size_t id, std::int64_t now) const {
    if (timeline_.end[id] <= now) return kDone;
    const std::int64_t moving = timeline_.moving[id];
    if (moving > now) return kUntouched;
    const Instruction& in = program_.code[id];
    // A message that is there waits for its RECV, for however long.
    return is_transfer(in.kind) ? std::min(now - moving, route_ns_[in.route]) : now - moving;
  }

  bool equal(const Phase& phase, std::int64_t before, std::int64_t now, std::size_t periods) const {
    for (std::size_t r = 0; r < phase.size(); ++r) {
      const std::size_t shift = periods * phase[r].period;
      const std::size_t open = first_open(r, before), untouched = first_untouched(r, before);
      if (first_open(r, now) != open + shift || first_untouched(r, now) != untouched + shift)
        return false;
      for (std::size_t id = open; id < untouched; ++id) {
        if (state(id, before) != state(id + shift, now)) return false;
      }
    }
    return true;
  }

  const Program& program_;
  const Timeline& timeline_;
  std::vector<std::int64_t> route_ns_;
  std::vector<std::int64_t> last_end_, first_move_;
};

std::int64_t busy_in(const Program& program, const Timeline& timeline, std::size_t begin,
                     std::size_t end) {
  std::int64_t busy = 0;
  for (std::size_t at = begin; at < end; ++at) {
    if (is_compute(program.code[at].kind)) busy += timeline.end[at] - timeline.start[at];
  }
  return busy;
}

}  // namespace

std::string no_steady_state(const Program& program, const CostTable& costs) {
  if (costs.actions != nullptr) return "micro-batches have costs of their own";
  if (costs.has_shared_links()) return "transfers share links";
  if (program.has_collectives() || !program.calls.empty()) return "ranks take part in collectives";
  if (!program.joined.empty()) return "transfers are joined in batches";
  if (program.asynchronous || !program.versions.empty()) return "weights change inside the step";
  if (!program.host_stands.empty()) return "hosts stand for good";
  if (is_forward_only(program)) return "there are no backwards";
  const CommPolicy& policy = program.policy;
  // Places are then counted over all RECVs first, of which there are more in a longer step.
  if (policy.issue == Issue::Stream && policy.in_flight > 0 && policy.post == Post::AtStart)
    return "places in flight are counted from the step's first receive to its last";
  return "";
}

std::optional<SteadyState> find_steady_state(const Program& program, const CostTable& costs,
                                             const Timeline& timeline,
                                             const std::vector<Phase>& phases, int micro_batches) {
  if (!no_steady_state(program, costs).empty()) return std::nullopt;
  const StateSearch search(program, costs, timeline);
  std::vector<StateSearch::Found> found;
  std::size_t all = 1;  // periods after which every phase's state has come back
  for (const Phase& phase : phases) {
    const auto moments = search.find(phase);
    if (!moments) return std::nullopt;
    all = std::lcm(all, moments->periods);
    if (all * static_cast<std::size_t>(micro_batches) > std::numeric_limits<int>::max() / 2U)
      return std::nullopt;
    found.push_back(*moments);
  }
  SteadyState steady;
  steady.micro_batches = static_cast<int>(all) * micro_batches;
  steady.busy_ns.resize(static_cast<std::size_t>(program.ranks()));
  for (std::size_t q = 0; q < phases.size(); ++q) {
    const auto times = static_cast<std::int64_t>(all / found[q].periods);
    steady.step_ns += times * (found[q].to - found[q].from);
    steady.parts.emplace_back();
    for (std::size_t r = 0; r < phases[q].size(); ++r) {
      const std::size_t begin = search.first_open(r, found[q].from);
      const std::size_t end = begin + found[q].periods * phases[q][r].period;
      steady.parts[q].push_back(
          {static_cast<InstructionId>(begin), static_cast<InstructionId>(end), times});
      steady.busy_ns[r] += times * busy_in(program, timeline, begin, end);
      steady.instructions += times * static_cast<std::int64_t>(end - begin);
    }
  }
  steady.last_end_ns.assign(steady.busy_ns.size(), steady.step_ns);
  return steady;
}

}  // namespace pipewright::sim
