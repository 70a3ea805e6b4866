#include "traces/chrome/memory_steps.hpp"

#include <algorithm>

#include "core/order/forward_order.hpp"
#include "core/program/version_changes.hpp"

namespace pipewright::traces {
namespace {

const StageMemory* memory_of(const CostTable& costs, StageId stage) {
  const std::size_t s = static_cast<std::size_t>(stage.value);
  return s < costs.memory.size() ? &costs.memory[s] : nullptr;
}

/// What an action changes at its start (F) and at its end (I, W, B).
class Changes {
 public:
  Changes(const CostTable& costs, bool forward_only, std::vector<MemoryStep>& out)
      : costs_(costs), forward_only_(forward_only), out_(out) {}

  void add(const Action& a, std::int64_t start, std::int64_t end) {
    const StageMemory* memory = memory_of(costs_, a.stage);
    const auto bytes = [&](Bytes StageMemory::*part) {
      return memory == nullptr ? 0 : (memory->*part).value;
    };
    if (a.kind == ActionKind::F) out_.push_back({start, 1, bytes(&StageMemory::f)});
    if (forward_only_) out_.push_back({end, -1, -bytes(&StageMemory::f)});
    if (a.kind == ActionKind::I) out_.push_back({end, 0, bytes(&StageMemory::i)});
    if (a.kind == ActionKind::W) out_.push_back({end, -1, bytes(&StageMemory::w)});
    if (a.kind == ActionKind::B) {
      out_.push_back({end, -1, bytes(&StageMemory::i) + bytes(&StageMemory::w)});
    }
  }

 private:
  const CostTable& costs_;
  const bool forward_only_;  // then an F keeps nothing after its end
  std::vector<MemoryStep>& out_;
};

}  // namespace

std::vector<MemoryStep> memory_steps(const Program& program, const Timeline& timeline,
                                     const CostTable& costs, RankId rank) {
  std::vector<MemoryStep> changes;
  Changes add(costs, is_forward_only(program), changes);
  const InstructionId begin = program.rank_begin[static_cast<std::size_t>(rank.value)];
  const InstructionId end = program.rank_begin[static_cast<std::size_t>(rank.value) + 1];
  for (InstructionId id = begin; id < end; ++id) {
    if (!is_compute(program.code[id].kind) || timeline.end[id] == kNotEnded) continue;
    const Cell cell = program.cell(id);
    add.add(cell.action, timeline.start[id], timeline.end[id]);
    if (cell.partner) add.add(*cell.partner, timeline.start[id], timeline.end[id]);
  }
  for (const VersionChange& version : version_changes(program, rank)) {
    const StageMemory* memory = memory_of(costs, StageId(version.stage));
    const std::int64_t at = timeline.end[begin + static_cast<InstructionId>(version.after)];
    if (memory == nullptr || at == kNotEnded) continue;
    changes.push_back({at, 0, 0, version.change * memory->version.value});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const MemoryStep& a, const MemoryStep& b) { return a.at_ns < b.at_ns; });
  std::vector<MemoryStep> steps{{}};
  for (const MemoryStep& change : changes) {
    const MemoryStep next{change.at_ns, steps.back().activations + change.activations,
                          steps.back().bytes + change.bytes,
                          steps.back().version_bytes + change.version_bytes};
    if (steps.back().at_ns == next.at_ns) {
      steps.back() = next;
    } else if (change.activations != 0 || change.bytes != 0 || change.version_bytes != 0) {
      steps.push_back(next);
    }
  }
  return steps;
}

std::int64_t constant_bytes(const Program& program, const CostTable& costs, RankId rank) {
  std::int64_t sum = 0;
  if (costs.memory.empty()) return sum;
  for (const StageId stage : program.placement.stages_of(rank)) {
    if (const StageMemory* memory = memory_of(costs, stage)) sum += memory->constant.value;
  }
  return sum;
}

}  // namespace pipewright::traces
