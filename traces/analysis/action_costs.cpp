#include "traces/analysis/action_costs.hpp"

#include <algorithm>
#include <limits>

#include "traces/analysis/tensor_ends.hpp"

namespace pipewright::traces {
namespace {

class Coster {
 public:
  Coster(const Program& program, const Timeline& timeline)
      : program_(program), timeline_(timeline), ends_(tensor_ends_of(program)) {}

  ActionCosts run() {
    find_latency();
    for (int r = 0; r < program_.ranks(); ++r) take_rank(RankId(r));
    return std::move(costs_);
  }

 private:
  void find_latency() {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const InstructionId producer = ends_.producer[id];
      if (!is_recv(program_.code[id].kind) || producer == kNoInstruction) continue;
      least = std::min(least, timeline_.end[id] - timeline_.end[producer]);
      ++costs_.messages;
    }
    if (costs_.messages > 0) costs_.latency = Nanoseconds(std::max<std::int64_t>(0, least));
  }

  void take_rank(RankId rank) {
    const auto r = static_cast<std::size_t>(rank.value);
    std::int64_t free_ns = 0, updates_ns = 0, updates = 0;
    for (InstructionId id = program_.rank_begin[r]; id < program_.rank_begin[r + 1]; ++id) {
      const ActionKind kind = program_.code[id].kind;
      const bool update = kind == ActionKind::Opt;
      if (!is_compute(kind) && !update) continue;
      const std::int64_t ready = std::max(free_ns, inputs_ready(id));
      const std::int64_t took = std::max<std::int64_t>(0, timeline_.end[id] - ready);
      free_ns = std::max(free_ns, timeline_.end[id]);
      if (!update) {
        costs_.times.push_back(
            {.rank = rank, .action = program_.cell(id), .time = Nanoseconds(took)});
        continue;
      }
      updates_ns += took;
      ++updates;
    }
    if (updates == 0) return;
    const Action update{.kind = ActionKind::Opt, .stage = {}, .micro_batch = {}};
    costs_.times.push_back({.rank = rank,
                            .action = {update, std::nullopt},
                            .time = Nanoseconds(updates_ns / updates)});
  }

  std::int64_t inputs_ready(InstructionId id) const {
    std::int64_t ready = 0;
    const auto take = [&](InstructionId input) {
      if (input == kNoInstruction || !is_recv(program_.code[input].kind)) return;
      const InstructionId producer = ends_.producer[input];
      if (producer == kNoInstruction) return;
      ready = std::max(ready, timeline_.end[producer] + costs_.latency.value);
    };
    take(program_.code[id].link);
    for (const auto& row : program_.extra_inputs_of(id)) take(row.second);
    return ready;
  }

  const Program& program_;
  const Timeline& timeline_;
  const TensorEnds ends_;
  ActionCosts costs_;
};

}  // namespace

ActionCosts action_costs(const Program& program, const Timeline& timeline) {
  return Coster(program, timeline).run();
}

}  // namespace pipewright::traces
