#include "traces/analysis/memory_profile.hpp"

#include <algorithm>

#include "core/order/stages_by_rank.hpp"
#include "core/timeline/live_memory.hpp"

namespace pipewright::traces {
namespace {

class Profiler {
 public:
  Profiler(const Program& program, const Timeline& timeline, const CostTable& costs,
           bool forward_only)
      : program_(program), timeline_(timeline), costs_(costs), forward_only_(forward_only) {}

  MemoryProfile run(RankId rank, const std::vector<StageId>& stages) {
    MemoryProfile profile;
    const auto begin = program_.rank_begin[static_cast<std::size_t>(rank.value)];
    const auto end = program_.rank_begin[static_cast<std::size_t>(rank.value) + 1];
    LiveMemory live(program_, costs_, rank, stages, forward_only_);
    profile.steps.push_back({0, live.bytes(), 0});
    profile.peak.bytes = profile.peak.constant_bytes = live.bytes();
    for (InstructionId id = begin; id < end; ++id) {
      const bool computes = is_compute(program_.code[id].kind);
      const bool ended = timeline_.end[id] != kNotEnded;
      if (computes && !ended) break;
      live.forget_peaks();
      live.pass();
      if (!ended) continue;
      HeldStep most{timeline_.end[id], live.peak_bytes(), live.peak_activations()};
      if (computes) most.at_ns = timeline_.start[id];
      add(most, profile.steps);
      if (is_higher(most, profile.peak)) {
        profile.peak.at_ns = most.at_ns;
        profile.peak.bytes = most.bytes;
        profile.peak.activations = most.activations;
        profile.peak.instruction = id;
      }
      HeldStep rest{timeline_.end[id], live.bytes(), live.activations()};
      if (computes) add(rest, profile.steps);
    }
    if (profile.peak.instruction != kNoInstruction)
      profile.peak.alive = alive_at(begin, profile.peak.instruction);
    return profile;
  }

 private:
  bool is_higher(const HeldStep& step, const MemoryPeak& peak) const {
    return costs_.memory.empty() ? step.activations > peak.activations : step.bytes > peak.bytes;
  }

  /// What stands beside the compute lane may end later than what follows it in the list.
  static void add(HeldStep& step, std::vector<HeldStep>& steps) {
    const HeldStep& last = steps.back();
    step.at_ns = std::max(step.at_ns, last.at_ns);
    if (step.bytes == last.bytes && step.activations == last.activations) return;
    steps.push_back(step);
  }

  std::int64_t bytes_of(const Action& a, Bytes StageMemory::*part) const {
    const auto stage = static_cast<std::size_t>(a.stage.value);
    return stage < costs_.memory.size() ? (costs_.memory[stage].*part).value : 0;
  }

  /// During the instruction: what came before it, and its own forward.
  std::vector<AliveActivation> alive_at(InstructionId begin, InstructionId during) const {
    std::vector<AliveActivation> alive;
    for (InstructionId id = begin; id <= during; ++id) {
      if (!is_compute(program_.code[id].kind)) continue;
      const Cell cell = program_.cell(id);
      take(cell.action, id == during, alive);
      if (cell.partner) take(*cell.partner, id == during, alive);
    }
    return alive;
  }

  void take(const Action& a, bool runs, std::vector<AliveActivation>& alive) const {
    if (a.kind == ActionKind::F) {
      if (!forward_only_ || runs)
        alive.push_back({a.stage, a.micro_batch, false, bytes_of(a, &StageMemory::f)});
      return;
    }
    if (runs) return;
    const auto own = std::find_if(alive.begin(), alive.end(), [&](const AliveActivation& each) {
      return each.stage == a.stage && each.micro_batch == a.micro_batch;
    });
    if (own == alive.end()) return;
    if (a.kind == ActionKind::I) {
      own->for_weights_alone = true;
      own->bytes += bytes_of(a, &StageMemory::i);
    } else {
      alive.erase(own);
    }
  }

  const Program& program_;
  const Timeline& timeline_;
  const CostTable& costs_;
  const bool forward_only_;
};

}  // namespace

std::int64_t MemoryPeak::other_bytes() const {
  std::int64_t rest = bytes - constant_bytes;
  for (const AliveActivation& each : alive) rest -= each.bytes;
  return rest;
}

std::vector<MemoryProfile> memory_profiles(const Program& program, const Timeline& timeline,
                                           const CostTable& costs) {
  const bool forward_only = is_forward_only(program);
  const auto stages = stages_by_rank(program.placement, program.micro_batches);
  Profiler profiler(program, timeline, costs, forward_only);
  std::vector<MemoryProfile> profiles;
  for (int r = 0; r < program.ranks(); ++r)
    profiles.push_back(profiler.run(RankId(r), stages[static_cast<std::size_t>(r)]));
  return profiles;
}

}  // namespace pipewright::traces
