#include "traces/chrome/host_track.hpp"

#include <algorithm>

namespace pipewright::traces {

std::vector<HostSlice> scaled_phases(const std::vector<HostPhase>& phases, std::int64_t end_ns) {
  std::int64_t all = 0;
  for (const HostPhase& phase : phases) all += phase.duration_ns;
  std::vector<HostSlice> slices;
  if (all <= 0) return slices;
  std::int64_t before = 0;
  const auto scaled = [&](std::int64_t ns) {
    return static_cast<std::int64_t>(static_cast<long double>(ns) * end_ns / all);
  };
  for (const HostPhase& phase : phases) {
    const std::int64_t after = before + phase.duration_ns;
    slices.push_back({phase.name, scaled(before), scaled(after), phase.duration_ns});
    before = after;
  }
  return slices;
}

std::vector<HostSlice> parts_of_step(const Program& program, const Timeline& timeline) {
  const std::int64_t end = timeline.makespan_ns;
  std::int64_t backward = end, update = end;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (timeline.end[id] == kNotEnded) continue;
    const bool goes_back =
        is_compute(in.kind) && (in.kind != ActionKind::F || in.has(Instruction::kPair));
    if (goes_back) backward = std::min(backward, timeline.start[id]);
    if (in.kind == ActionKind::Opt) update = std::min(update, timeline.start[id]);
  }
  backward = std::min(backward, update);
  std::vector<HostSlice> parts;
  const auto add = [&](const char* name, std::int64_t from, std::int64_t to) {
    if (from < to) parts.push_back({name, from, to, to - from});
  };
  add("forward", 0, backward);
  add("backward", backward, update);
  add("update", update, end);
  return parts;
}

}  // namespace pipewright::traces
