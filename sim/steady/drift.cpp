#include "sim/steady/drift.hpp"

#include <algorithm>
#include <cstdint>

namespace pipewright::sim {
namespace {

/// Beyond that the search takes longer than it saves.
constexpr std::size_t kMostInstructions = 4'000'000;

/// By how much an instruction ends later with one period more in every phase.
struct Growth {
  std::int64_t from_start = 0;  // the instruction in the same place from the start of its phase
  std::int64_t from_end = 0;    // in the same place from its end; of those in no phase the same
  std::int32_t phase = -1;      // in which times are linear; -1: the place is counted from one side
};

class Drift {
 public:
  Drift(const RanProgram& shorter, const RanProgram& longer, const std::vector<Phase>& phases)
      : program_(shorter.program),
        end_(shorter.timeline.end),
        start_(shorter.timeline.start),
        longer_(longer),
        phases_(phases),
        growth_(program_.code.size()) {}

  bool find() {
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (!measure(r)) return false;
    }
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (!go_on_alike(r)) return false;
    }
    return true;
  }

  std::optional<SteadyState> steady(int micro_batches) const {
    const auto last =
        static_cast<std::size_t>(std::max_element(end_.begin(), end_.end()) - end_.begin());
    SteadyState steady;
    steady.micro_batches = micro_batches;
    steady.step_ns = growth_[last].from_end;
    for (const Growth& growth : growth_) {
      // Another one would be the last of a longer step.
      if (growth.from_end > steady.step_ns) return std::nullopt;
    }
    steady.parts.resize(phases_.size());
    for (std::size_t r = 0; r < ranks(); ++r) {
      std::int64_t busy = 0, later = 0;
      bool is_first = true;
      for (InstructionId id = program_.rank_begin[r]; id < program_.rank_begin[r + 1]; ++id) {
        if (program_.code[id].is_communication()) continue;
        if (is_first && growth_[id].from_start != 0) return std::nullopt;
        is_first = false;
        later = growth_[id].from_end;
      }
      for (std::size_t q = 0; q < phases_.size(); ++q) {
        const auto begin = static_cast<InstructionId>(middle_place(phases_[q][r]));
        const auto end = static_cast<InstructionId>(begin + phases_[q][r].period);
        steady.parts[q].push_back({begin, end, 1});
        steady.instructions += end - begin;
        for (InstructionId id = begin; id < end; ++id) {
          if (is_compute(program_.code[id].kind)) busy += end_[id] - start_[id];
        }
      }
      steady.busy_ns.push_back(busy);
      steady.last_end_ns.push_back(later);
    }
    return steady;
  }

 private:
  std::size_t ranks() const { return program_.rank_begin.size() - 1; }
  static std::size_t middle_place(const Middle& middle) {
    return middle.begin + (middle.size() - middle.period) / 2;
  }

  // --- How much later each instruction ends ---

  /// False: the two lists are not alike.
  bool measure(std::size_t rank) {
    std::size_t put_in = 0, at = program_.rank_begin[rank];
    for (std::size_t q = 0; q < phases_.size(); ++q) {
      const Middle linear = linear_part(phases_[q][rank], at);
      if (linear.size() < 3 * linear.period) return false;
      for (; at < linear.begin; ++at) measure_one(rank, at, put_in, put_in);
      for (; at < linear.end; ++at) {
        measure_one(rank, at, put_in, put_in + linear.period);
        growth_[at].phase = static_cast<std::int32_t>(q);
        if (at < linear.begin + linear.period) continue;
        const Growth& before = growth_[at - linear.period];
        if (growth_[at].from_start != before.from_start || growth_[at].from_end != before.from_end)
          return false;
      }
      put_in += linear.period;
    }
    for (; at < program_.rank_begin[rank + 1]; ++at) measure_one(rank, at, put_in, put_in);
    return at - program_.rank_begin[rank] + put_in ==
           longer_.program.rank_begin[rank + 1] - longer_.program.rank_begin[rank];
  }

  void measure_one(std::size_t rank, std::size_t at, std::size_t before, std::size_t with) {
    const std::size_t there = longer_.program.rank_begin[rank] + (at - program_.rank_begin[rank]);
    const auto later = [&](std::size_t put_in) {
      return longer_.timeline.end[there + put_in] - end_[at];
    };
    growth_[at] = {later(before), later(with), -1};
  }

  /// Around the middle of the phase, as far as each instruction ends as much later than the one a
  /// period before it as this one did.
  Middle linear_part(const Middle& phase, std::size_t from) const {
    const std::size_t period = phase.period, first = std::max(phase.begin, from);
    const auto step = [&](std::size_t at) { return end_[at + period] - end_[at]; };
    Middle part{middle_place(phase), middle_place(phase), period};
    if (part.begin < first || part.end + 2 * period > phase.end) return part;
    while (part.begin > first && step(part.begin - 1) == step(part.begin - 1 + period))
      --part.begin;
    while (part.end + 2 * period < phase.end && step(part.end) == step(part.end + period))
      ++part.end;
    part.end += 2 * period;
    return part;
  }

  // --- What decides ---

  bool is_near_start(const Growth& growth, std::size_t rank, std::size_t at) const {
    const Middle& phase = phases_[static_cast<std::size_t>(growth.phase)][rank];
    return at < phase.begin + phase.size() / 2;
  }

  bool is_on_lane(std::size_t id) const { return !is_transfer(program_.code[id].kind); }

  enum class Goes : std::uint8_t { Faster, Slower, Alike };

  static Goes goes(std::int64_t input, std::int64_t own) {
    return input > own ? Goes::Faster : input < own ? Goes::Slower : Goes::Alike;
  }

  /// How the end of an input grows beside that of an instruction. Of two in linear parts it is so
  /// for every place and length if it is at both sides.
  Goes goes(std::size_t input, std::size_t input_rank, std::size_t at, std::size_t rank) const {
    const Growth &a = growth_[input], &b = growth_[at];
    if (a.phase >= 0 && b.phase >= 0) {
      // The last computation of a phase, before the first one of the next.
      if (a.phase != b.phase && is_on_lane(input)) return goes(a.from_end, b.from_start);
      const Goes start = goes(a.from_start, b.from_start), end = goes(a.from_end, b.from_end);
      if (start == Goes::Faster || end == Goes::Faster) return Goes::Faster;
      return start == Goes::Alike && end == Goes::Alike ? Goes::Alike : Goes::Slower;
    }
    const bool near_start = a.phase >= 0   ? is_near_start(a, input_rank, input)
                            : b.phase >= 0 ? is_near_start(b, rank, at)
                                           : true;
    return near_start ? goes(a.from_start, b.from_start) : goes(a.from_end, b.from_end);
  }

  /// Every instruction of a rank has an input that decides and goes on to.
  bool go_on_alike(std::size_t rank) const {
    std::size_t before = kNoInstruction;  // the computation before
    for (std::size_t at = program_.rank_begin[rank]; at < program_.rank_begin[rank + 1]; ++at) {
      const Instruction& in = program_.code[at];
      bool decided = false, fits = true;
      const std::int64_t start = is_transfer(in.kind) ? end_[at] : start_[at];
      const auto look = [&](std::size_t input, std::size_t input_rank, bool decides) {
        const Goes how = goes(input, input_rank, at, rank);
        fits &= how != Goes::Faster && is_periodic(input, input_rank, at, rank);
        decided |= decides && how == Goes::Alike;
      };
      if (is_recv(in.kind)) {
        if (in.link == kNoInstruction) return false;
        look(in.link, source_of(in), true);
      } else {
        if (is_send(in.kind) && in.has(Instruction::kExtraInput)) return false;
        if (before != kNoInstruction) look(before, rank, end_[before] == start);
        if (before == kNoInstruction) decided |= start == 0 && growth_[at].from_start == 0;
        if (!is_send(in.kind) && in.link != kNoInstruction)
          look(in.link, rank, end_[in.link] == start);
        for (const auto& [self, input] : program_.extra_inputs_of(static_cast<InstructionId>(at)))
          look(input, rank, end_[input] == start);
        if (!is_send(in.kind)) before = at;
      }
      if (!decided || !fits) return false;
    }
    return true;
  }

  std::size_t source_of(const Instruction& in) const {
    return static_cast<std::size_t>(program_.routes[in.route].source.value);
  }

  /// In the middle of a phase all inputs are in linear parts, at the same distance all along; so
  /// what is seen of one is so of all.
  bool is_periodic(std::size_t input, std::size_t input_rank, std::size_t at,
                   std::size_t rank) const {
    const Growth &a = growth_[input], &b = growth_[at];
    if (b.phase < 0) return true;
    const Middle& own = phases_[static_cast<std::size_t>(b.phase)][rank];
    const std::size_t middle = middle_place(own);
    if (a.phase < 0) return at < middle || at >= middle + own.period;
    const std::size_t next = at + own.period;
    if (next >= own.end || growth_[next].phase != b.phase) return true;
    const Middle& its = phases_[static_cast<std::size_t>(a.phase)][input_rank];
    const std::size_t later = input + its.period;
    if (later >= its.end || growth_[later].phase != a.phase) return true;
    const Instruction& in = program_.code[next];
    if (is_on_lane(input)) return a.phase == b.phase;
    const auto inputs = program_.extra_inputs_of(static_cast<InstructionId>(next));
    return in.link == later || std::any_of(inputs.begin(), inputs.end(),
                                           [&](const auto& row) { return row.second == later; });
  }

  const Program& program_;
  const std::vector<std::int64_t>&end_, &start_;
  const RanProgram& longer_;
  const std::vector<Phase>& phases_;
  std::vector<Growth> growth_;  // by instruction
};

}  // namespace

std::optional<SteadyState> find_drift(const RanProgram& shorter, const RanProgram& longer,
                                      const std::vector<Phase>& phases, int micro_batches) {
  if (!shorter.program.policy.is_free_of_waits() || shorter.program.code.size() > kMostInstructions)
    return std::nullopt;
  Drift drift(shorter, longer, phases);
  if (!drift.find()) return std::nullopt;
  return drift.steady(micro_batches);
}

}  // namespace pipewright::sim
