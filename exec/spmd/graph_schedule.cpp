#include "exec/spmd/graph_schedule.hpp"

namespace pipewright::exec::graphs {

GraphSchedule schedule_of(const spmd::PipelineStages& stages, const Program& program) {
  GraphSchedule schedule{.stages = stages,
                         .lists = {},
                         .micro_batches = static_cast<std::size_t>(program.micro_batches)};
  for (int rank = 0; rank < program.ranks(); ++rank) {
    auto& list = schedule.lists.emplace_back();
    for (InstructionId at = program.rank_begin[static_cast<std::size_t>(rank)];
         at < program.rank_begin[static_cast<std::size_t>(rank) + 1]; ++at) {
      if (!is_compute(program.code[at].kind)) continue;
      const Cell cell = program.cell(at);
      list.push_back(cell.action);
      if (cell.partner) list.push_back(*cell.partner);
    }
  }
  return schedule;
}

GraphSchedule one_after_another(const spmd::PipelineStages& stages, int micro_batches) {
  GraphSchedule schedule{.stages = stages,
                         .lists = std::vector<std::vector<Action>>(1),
                         .micro_batches = static_cast<std::size_t>(micro_batches)};
  for (int at = 0; at < micro_batches; ++at) {
    for (const ActionKind kind : {ActionKind::F, ActionKind::B}) {
      schedule.lists[0].push_back(
          {.kind = kind, .stage = StageId(0), .micro_batch = MicroBatchId(at)});
    }
  }
  return schedule;
}

}  // namespace pipewright::exec::graphs
