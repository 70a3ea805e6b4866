#include "sim/steady/program_middle.hpp"

#include <algorithm>

namespace pipewright::sim {
namespace {

class Repetition {
 public:
  Repetition(const Program& program, const Order& order, const OrderMiddle& middle, int periods)
      : program_(program),
        order_(order),
        middle_(middle),
        periods_(static_cast<std::size_t>(periods)),
        alike_(middle.phases.size()) {}

  std::optional<std::vector<Phase>> find() {
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      if (!find_alike(r)) return std::nullopt;
    }
    std::vector<Phase> found = alike_;
    for (std::size_t q = 0; q < found.size(); ++q) {
      for (std::size_t r = 0; r < found[q].size(); ++r) {
        Middle& middle = found[q][r];
        const std::size_t from = middle.begin + (middle.size() - middle.period) / 2;
        middle =
            grown_on(r, from, middle.period, [&](std::size_t at) { return repeats(q, r, at); });
        if (middle.size() < 2 * middle.period) return std::nullopt;
      }
    }
    return found;
  }

 private:
  /// Of a rank's cells the instruction that each has become.
  std::vector<std::size_t> instructions_of(std::size_t rank) const {
    std::vector<std::size_t> places;
    std::size_t id = program_.rank_begin[rank];
    const std::size_t end = program_.rank_begin[rank + 1];
    for (const Cell& cell : order_.ranks[rank]) {
      while (id < end && !is_compute(program_.code[id].kind)) ++id;
      places.push_back(id);
      if (is_compute(cell.action.kind) && id < end) ++id;
    }
    return places;
  }

  /// The phases of a rank as far as instructions are alike, whatever they are linked to.
  bool find_alike(std::size_t rank) {
    const auto places = instructions_of(rank);
    for (std::size_t q = 0; q < alike_.size(); ++q) {
      const Middle& cells = middle_.phases[q][rank];
      const std::size_t further = periods_ * cells.period;
      if (cells.size() < 2 * further) return false;
      std::size_t from = cells.begin + (cells.size() - further) / 2;
      while (from + further < cells.end && !is_compute(order_.ranks[rank][from].action.kind))
        ++from;
      if (from + further >= cells.end) return false;
      const std::size_t period = places[from + further] - places[from];
      alike_[q].push_back(grown_on(rank, places[from], period, [&](std::size_t at) {
        return are_alike(static_cast<InstructionId>(at), static_cast<InstructionId>(at + period));
      }));
      if (alike_[q].back().size() < 2 * period) return false;
    }
    return true;
  }

  template <class Repeats>
  Middle grown_on(std::size_t rank, std::size_t from, std::size_t period, Repeats repeats) const {
    return grown(from, period, program_.rank_begin[rank], program_.rank_begin[rank + 1], repeats);
  }

  bool are_alike(InstructionId id, InstructionId next) const {
    const Instruction& a = program_.code[id];
    const Instruction& b = program_.code[next];
    if (a.kind != b.kind || a.flags != b.flags || a.stage != b.stage || a.route != b.route)
      return false;
    if ((a.link == kNoInstruction) != (b.link == kNoInstruction)) return false;
    if (!a.has(Instruction::kPair)) return true;
    const Action x = *program_.cell(id).partner, y = *program_.cell(next).partner;
    return x.kind == y.kind && x.stage == y.stage;
  }

  std::size_t peer_of(const Instruction& in) const {
    const Route& route = program_.routes[in.route];
    return static_cast<std::size_t>((is_send(in.kind) ? route.destination : route.source).value);
  }

  /// Of two that instructions a period apart are linked to.
  bool is_later(InstructionId a, InstructionId b, const Middle& there) const {
    return b - a == there.period || (a < there.begin && b < there.begin) ||
           (a >= there.end && b >= there.end);
  }

  bool repeats(std::size_t phase, std::size_t rank, std::size_t at) const {
    const Middle& here = alike_[phase][rank];
    const auto id = static_cast<InstructionId>(at);
    const auto next = static_cast<InstructionId>(at + here.period);
    if (!are_alike(id, next)) return false;
    const Instruction& a = program_.code[id];
    if (a.link != kNoInstruction) {
      const std::size_t other = is_transfer(a.kind) ? peer_of(a) : rank;
      if (!is_later(a.link, program_.code[next].link, alike_[phase][other])) return false;
    }
    if (!a.has(Instruction::kExtraInput)) return true;
    const auto inputs = program_.extra_inputs_of(id), later = program_.extra_inputs_of(next);
    return std::equal(
        inputs.begin(), inputs.end(), later.begin(), later.end(),
        [&](const auto& x, const auto& y) { return is_later(x.second, y.second, here); });
  }

  const Program& program_;
  const Order& order_;
  const OrderMiddle& middle_;
  const std::size_t periods_;
  std::vector<Phase> alike_;
};

}  // namespace

std::optional<std::vector<Phase>> middle_of(const Program& program, const Order& order,
                                            const OrderMiddle& middle, int periods) {
  return Repetition(program, order, middle, periods).find();
}

}  // namespace pipewright::sim
