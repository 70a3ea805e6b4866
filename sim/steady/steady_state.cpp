#include "sim/steady/steady_state.hpp"

#include <algorithm>
#include <limits>

#include "sim/steady/program_middle.hpp"

namespace pipewright::sim {
namespace {

class StateSearch {
 public:
  StateSearch(const Program& program, const CostTable& costs, const Timeline& timeline,
              const std::vector<Middle>& middles)
      : program_(program), timeline_(timeline), middles_(middles) {
    for (const Route& route : program.routes)
      route_ns_.push_back(costs.transfer_time(route, program.ranks()).value);
    last_end_.resize(program.code.size());
    first_move_.resize(program.code.size());
    for (std::size_t r = 0; r < middles.size(); ++r) fill_rank(r);
  }

  struct Found {
    std::size_t periods = 0;
    std::int64_t from = 0, to = 0;  // the two moments
  };
  /// Two moments in the middle, as near to each other as they are equal. Towards its end the drain
  /// may be felt already, and towards its beginning the fill, so a few places are tried.
  std::optional<Found> find() const {
    const Middle& middle = middles_.front();
    std::size_t first = middle.begin;
    while (!is_compute(program_.code[first].kind)) ++first;
    const auto moment = [&](std::size_t k) { return timeline_.end[first + k * middle.period]; };
    std::size_t last = (middle.end - 1 - first) / middle.period, least = 0;
    while (last > 0 && !is_inside(moment(last))) --last;
    while (least < last && !is_inside(moment(least))) ++least;
    for (const std::size_t quarters : {3U, 2U, 4U}) {
      const std::size_t to = least + (last - least) * quarters / 4;
      for (std::size_t k = 1; k <= to - least; ++k) {
        if (equal(moment(to - k), moment(to), k)) return Found{k, moment(to - k), moment(to)};
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

  /// All that is open and touched lies in the middle, and each rank has computed something.
  bool is_inside(std::int64_t now) const {
    for (std::size_t r = 0; r < middles_.size(); ++r) {
      const std::size_t open = first_open(r, now);
      if (open < middles_[r].begin || first_untouched(r, now) > middles_[r].end) return false;
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

  bool equal(std::int64_t before, std::int64_t now, std::size_t periods) const {
    for (std::size_t r = 0; r < middles_.size(); ++r) {
      const std::size_t shift = periods * middles_[r].period;
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
  const std::vector<Middle>& middles_;
  std::vector<std::int64_t> route_ns_;
  std::vector<std::int64_t> last_end_, first_move_;
};

/// What a rank's computations in a part of its list take, and what they leave behind in memory.
struct PartOfRank {
  std::int64_t busy_ns = 0, activations = 0, bytes = 0;

  void add(const Action& action, const CostTable& costs) {
    const bool weighs = action.kind == ActionKind::W || action.kind == ActionKind::B;
    const bool gives = action.kind == ActionKind::I || action.kind == ActionKind::B;
    if (action.kind == ActionKind::F) ++activations;
    if (weighs) --activations;
    const auto stage = static_cast<std::size_t>(action.stage.value);
    if (stage >= costs.memory.size()) return;
    if (action.kind == ActionKind::F) bytes += costs.memory[stage].f.value;
    if (gives) bytes += costs.memory[stage].i.value;
    if (weighs) bytes += costs.memory[stage].w.value;
  }
};

PartOfRank part_of_rank(const Program& program, const CostTable& costs, const Timeline& timeline,
                        std::size_t begin, std::size_t end) {
  PartOfRank part;
  for (std::size_t at = begin; at < end; ++at) {
    const Instruction& in = program.code[at];
    if (!is_compute(in.kind)) continue;
    part.busy_ns += timeline.end[at] - timeline.start[at];
    const Cell cell = program.cell(static_cast<InstructionId>(at));
    part.add(cell.action, costs);
    if (cell.partner) part.add(*cell.partner, costs);
  }
  return part;
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
                                             const Timeline& timeline, int period) {
  if (!no_steady_state(program, costs).empty()) return std::nullopt;
  const auto middles = middle_of(program, period);
  if (!middles) return std::nullopt;
  const StateSearch search(program, costs, timeline, *middles);
  const auto found = search.find();
  if (!found) return std::nullopt;
  SteadyState steady;
  steady.micro_batches = static_cast<int>(found->periods) * period;
  steady.step_ns = found->to - found->from;
  for (std::size_t r = 0; r < middles->size(); ++r) {
    const std::size_t begin = search.first_open(r, found->from);
    const std::size_t repeated = found->periods * (*middles)[r].period;
    const PartOfRank part = part_of_rank(program, costs, timeline, begin, begin + repeated);
    if (part.activations != 0 || part.bytes != 0) return std::nullopt;
    steady.busy_ns.push_back(part.busy_ns);
    steady.instructions += static_cast<std::int64_t>(repeated);
  }
  return steady;
}

}  // namespace pipewright::sim
