#include "sim/steady/program_middle.hpp"

#include <algorithm>

namespace pipewright::sim {
namespace {

class Repetition {
 public:
  Repetition(const Program& program, int micro_batches)
      : program_(program), shift_(static_cast<std::uint32_t>(micro_batches)) {}

  std::optional<std::vector<Middle>> find() {
    for (int r = 0; r < program_.ranks(); ++r) {
      if (!find_period(r)) return std::nullopt;
    }
    for (int r = 0; r < program_.ranks(); ++r) {
      if (!find_ends(static_cast<std::size_t>(r))) return std::nullopt;
    }
    return std::move(middles_);
  }

 private:
  static std::uint32_t later(const Instruction& in, std::uint32_t by) {
    return has_micro_batch(in.kind) ? in.micro_batch + by : in.micro_batch;
  }
  static bool same_kind(const Instruction& a, const Instruction& b) {
    return a.kind == b.kind && a.flags == b.flags && a.stage == b.stage && a.route == b.route;
  }

  /// From a computation in the middle of the list to the same one of the next period.
  bool find_period(int rank) {
    const InstructionId begin = program_.rank_begin[static_cast<std::size_t>(rank)];
    const InstructionId end = program_.rank_begin[static_cast<std::size_t>(rank) + 1];
    InstructionId from = begin + (end - begin) / 2;
    while (from < end && !is_compute(program_.code[from].kind)) ++from;
    InstructionId to = from + 1;
    const auto is_next = [&](const Instruction& in) {
      const Instruction& first = program_.code[from];
      return same_kind(in, first) && in.micro_batch == first.micro_batch + shift_;
    };
    while (to < end && !is_next(program_.code[to])) ++to;
    if (to >= end) return false;
    middles_.push_back({from, from, to - from});
    return true;
  }

  std::size_t peer_of(const Instruction& in) const {
    const Route& route = program_.routes[in.route];
    return static_cast<std::size_t>((is_send(in.kind) ? route.destination : route.source).value);
  }

  bool repeats(std::size_t rank, std::size_t at) const {
    const auto id = static_cast<InstructionId>(at);
    const std::size_t period = middles_[rank].period;
    const auto next = static_cast<InstructionId>(at + period);
    const Instruction& a = program_.code[id];
    const Instruction& b = program_.code[next];
    if (!same_kind(a, b) || b.micro_batch != later(a, shift_)) return false;
    if ((a.link == kNoInstruction) != (b.link == kNoInstruction)) return false;
    if (a.link != kNoInstruction) {
      const std::size_t other = is_transfer(a.kind) ? peer_of(a) : rank;
      if (b.link - a.link != middles_[other].period) return false;
    }
    return (!a.has(Instruction::kPair) || same_partner(id, next)) &&
           (!a.has(Instruction::kExtraInput) || same_inputs(id, next, period));
  }

  bool same_partner(InstructionId id, InstructionId next) const {
    const Action a = *program_.cell(id).partner, b = *program_.cell(next).partner;
    return a.kind == b.kind && a.stage == b.stage &&
           b.micro_batch.value - a.micro_batch.value == static_cast<std::int32_t>(shift_);
  }

  bool same_inputs(InstructionId id, InstructionId next, std::size_t period) const {
    const auto a = program_.extra_inputs_of(id), b = program_.extra_inputs_of(next);
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const auto& x, const auto& y) { return y.second - x.second == period; });
  }

  bool find_ends(std::size_t rank) {
    Middle& middle = middles_[rank];
    const std::size_t first = program_.rank_begin[rank], behind = program_.rank_begin[rank + 1];
    while (middle.begin > first && repeats(rank, middle.begin - 1)) --middle.begin;
    while (middle.end + middle.period < behind && repeats(rank, middle.end)) ++middle.end;
    middle.end += middle.period;
    return middle.end - middle.begin >= 2 * middle.period;
  }

  const Program& program_;
  const std::uint32_t shift_;
  std::vector<Middle> middles_;
};

}  // namespace

std::optional<std::vector<Middle>> middle_of(const Program& program, int micro_batches) {
  return Repetition(program, micro_batches).find();
}

}  // namespace pipewright::sim
