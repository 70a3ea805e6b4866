#include "exec/devices/cpu/training_fit.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/context_split.hpp"
#include "core/model/tensor_split.hpp"
#include "core/order/devices.hpp"
#include "core/order/forward_order.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/layers/divided/divided_parts.hpp"

namespace pipewright::exec::cpu {
namespace {

[[noreturn]] void refuse_training(const std::string& why) {
  throw InputError("cannot train: " + why);
}

void require_sizes(const Program& program, const Training& training) {
  if (program.fragment) refuse_training("the order is a fragment; give a whole one");
  const bool forward_only = is_forward_only(program);
  if (forward_only && training.mode == RunMode::Train)
    refuse_training("the order is forward-only; evaluate or predict with it");
  PIPEWRIGHT_ASSERT(forward_only || training.mode == RunMode::Train,
                    "a Program with a backward is to run forward only");
  if (static_cast<std::size_t>(program.stages) != training.stages.size()) {
    refuse_training("the schedule has " + std::to_string(program.stages) + " stages, the plan " +
                    std::to_string(training.stages.size()));
  }
  const int micro_batches = micro_batches_of_data(program.devices, program.micro_batches);
  if (micro_batches != training.micro_batches) {
    refuse_training("the schedule has " + std::to_string(micro_batches) +
                    " micro-batches, the plan " + std::to_string(training.micro_batches));
  }
}

/// Replicas that share out what they keep, in groups, have all experts in each; `experts` hold all
/// together.
void require_whole_groups(const Program& program, int experts) {
  for (const Collective& one : program.collectives) {
    const auto replicas = static_cast<int>(one.members.size());
    if (one.kind != ActionKind::Unshard || replicas % experts == 0) continue;
    refuse_training("groups of " + std::to_string(replicas) +
                    " replicas divide the optimizer's state (ZeRO), and " +
                    std::to_string(experts) +
                    " replicas divide the experts (ep); take a sharding_degree that is a multiple "
                    "of ep");
  }
}

/// Of ranks that divide rows.
void require_row_division(const Program& program, const Training& training) {
  if (!training.options.ranks.rows) return;
  const std::string fault =
      sequence_fault(*training.model, size_along(program.devices, kTensorAxis));
  if (!fault.empty()) refuse_training(fault);
}

/// Ranks that divide layers.
void require_division(const Program& program, const Training& training) {
  if (devices_of_rank(program.mesh) > 1)
    refuse_training("each rank of the order stands for several devices; write them out");
  const int parts = size_along(program.devices, kTensorAxis);
  const int experts = size_along(program.devices, kExpertAxis);
  const int context = size_along(program.devices, kContextAxis);
  if (parts * experts * context != devices_of_rank(program.devices))
    refuse_training("only the devices along tp, cp and ep divide layers so far");
  if (parts * experts * context == 1) return;
  const StageDivision ranks = division_of(program, training);
  const std::string axis = parts > 1 ? "tp" : context > 1 ? "cp" : "ep";
  if (program.asynchronous)
    refuse_training("an asynchronous schedule cannot divide its layers (" + axis + ") so far");
  const StagePlan& last = training.stages.back();
  if (parts > 1 && last.first_layer == last.end_layer)
    refuse_training(
        "a stage of the loss alone cannot be divided (tp): it needs the whole output of the last "
        "layer; put that layer into it");
  for (const std::string& fault :
       {tensor_fault(*training.model, parts), expert_fault(*training.model, ranks),
        context_fault(*training.model, ranks)})
    if (!fault.empty()) refuse_training(fault);
  require_whole_groups(program, ranks.expert_replicas());
}

void require_layers(const Training& training) {
  int next = 0;
  for (const StagePlan& stage : training.stages) {
    if (stage.first_layer != next || stage.end_layer < next) {
      refuse_training("the stages do not cover the model's layers one after another");
    }
    next = stage.end_layer;
  }
  if (next != static_cast<int>(training.model->layers.size())) {
    refuse_training("the stages end at layer " + std::to_string(next) + " of " +
                    std::to_string(training.model->layers.size()));
  }
}

[[noreturn]] void refuse_parts(const Action& action, const std::string& why) {
  throw InputError("the parts of " + to_string(action) + " are not those of the model's layers: " +
                   why + "; make the plan anew from its model");
}

using PlannedPart = pipewright::Part;

bool are_alike(const PlannedPart& a, const PlannedPart& b) {
  return difference(a.call, b.call).empty() && a.beside == b.beside;
}

void require_calls(const Action& action, const std::vector<PlannedPart>& planned,
                   const std::vector<ActionParts>& of_layers) {
  std::vector<PlannedPart> wanted;
  if (const ActionParts* const parts = parts_of(of_layers, action)) {
    for (const auto& part : parts->parts) {
      if (!part.is_computation()) wanted.push_back({part.call, 0, part.beside});
    }
  }
  for (std::size_t i = 0; i < std::max(planned.size(), wanted.size()); ++i) {
    if (i == planned.size()) refuse_parts(action, to_string(wanted[i]) + " is missing");
    if (i == wanted.size())
      refuse_parts(action, "no layer asks for " + to_string(planned[i]) + " there");
    if (are_alike(planned[i], wanted[i])) continue;
    refuse_parts(action,
                 to_string(planned[i]) + " stands where a layer asks for " + to_string(wanted[i]));
  }
}

/// Of one stage on a rank, whose layers ask for these.
void require_calls(const Program& program, RankId rank, StageId stage,
                   const std::vector<ActionParts>& of_layers) {
  std::vector<std::pair<Action, PlannedPart>> told;  // of the action, or the pair, that comes next
  const auto require = [&](const Action& action) {
    if (action.stage != stage) return;
    std::vector<PlannedPart> planned;
    for (const auto& [of, call] : told) {
      if (of == action) planned.push_back(call);
    }
    require_calls(action, planned, of_layers);
  };
  const auto r = static_cast<std::size_t>(rank.value);
  for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
    const Instruction& in = program.code[id];
    if (const Action* const action = program.action_of_part(id)) {
      if (is_call(in.kind))
        told.emplace_back(*action, PlannedPart{program.call(in), 0, program.work(in).beside});
    } else if (is_compute(in.kind)) {
      const Cell cell = program.cell(id);
      require(cell.action);
      if (cell.partner) require(*cell.partner);
      told.clear();
    }
  }
}

/// What ranks bring together inside an action has to be what its layers ask for.
void require_parts(const Program& program, const Training& training) {
  const StageDivision ranks = division_of(program, training);
  if (ranks == StageDivision{}) return;
  for (std::size_t s = training.stages.size(); s-- > 0;) {
    const StageId stage(static_cast<std::int64_t>(s));
    const StagePlan& layers = training.stages[s];
    auto of_layers = divided_parts(*training.model, layers.first_layer, layers.end_layer,
                                   training.micro_batch_size, training.options.recompute, ranks,
                                   training.options.numerics, training.mode);
    for (ActionParts& one : of_layers) one.stage = stage;
    for (int r = 0; r < program.ranks(); ++r) require_calls(program, RankId(r), stage, of_layers);
  }
}

/// Whether the replicas of a stage divide its gradients: each REDUCE_GRAD then adds to the sums.
bool divides_gradients(const Program& program, int stage) {
  return program.sharding.divides_gradients() &&
         std::any_of(program.collectives.begin(), program.collectives.end(),
                     [&](const Collective& one) {
                       return one.kind == ActionKind::Unshard && one.stage.value == stage;
                     });
}

/// What happens to the weights of a stage on a rank, in order: 'r' REDUCE_GRADs, 'o' an OPT.
/// Refuses an OPT of gradients that have not been reduced.
std::string updates_of(const Program& program, int stage, RankId rank) {
  std::string updates;
  bool unreduced = false;
  const bool divides = divides_gradients(program, stage);
  const auto adds = [stage](const Action& a) {
    return (a.kind == ActionKind::W || a.kind == ActionKind::B) && a.stage.value == stage;
  };
  const std::string replica =
      "the replica of stage " + std::to_string(stage) + " on rank " + std::to_string(rank.value);
  for (InstructionId id = program.rank_begin[static_cast<std::size_t>(rank.value)];
       id < program.rank_begin[static_cast<std::size_t>(rank.value) + 1]; ++id) {
    const Cell cell = program.cell(id);
    if (adds(cell.action) || (cell.partner && adds(*cell.partner))) {
      if (!divides && !updates.empty() && updates.back() == 'r') {
        refuse_training(
            replica + " computes " + program.text(id) +
            " between its REDUCE_GRAD and the OPT; reduce after the last weight gradient");
      }
      unreduced = true;
    } else if (cell.action.kind == ActionKind::ReduceGrad && cell.action.stage.value == stage) {
      const bool again = !updates.empty() && updates.back() == 'r';
      if (again && !divides) refuse_training(replica + " is reduced twice without an OPT between");
      if (!again) updates += 'r';
      unreduced = false;
    } else if (cell.action.kind == ActionKind::Opt) {
      if (unreduced) {
        refuse_training(replica +
                        " updates its weights without the gradients of the others; put a " +
                        std::to_string(stage) + "REDUCE_GRAD before the OPT");
      }
      updates += 'o';
    }
  }
  return updates;
}

/// Of the ranks that hold this part of their stages.
void require_equal_replicas(const Program& program, int part) {
  std::vector<std::vector<RankId>> ranks_of(static_cast<std::size_t>(program.stages));
  for (int r = 0; r < program.ranks(); ++r) {
    if (coordinate_of(program.devices, kTensorAxis, RankId(r)) != part) continue;
    for (const StageId stage : program.placement.stages_of(RankId(r)))
      ranks_of[static_cast<std::size_t>(stage.value)].emplace_back(r);
  }
  for (int s = 0; s < program.stages; ++s) {
    const auto& ranks = ranks_of[static_cast<std::size_t>(s)];
    if (ranks.size() < 2) continue;
    const std::string first = updates_of(program, s, ranks.front());
    for (const RankId rank : ranks) {
      if (updates_of(program, s, rank) == first) continue;
      refuse_training("ranks " + std::to_string(ranks.front().value) + " and " +
                      std::to_string(rank.value) + " hold replicas of stage " + std::to_string(s) +
                      ", but do not reduce and update it in the same sequence");
    }
  }
}

void require_equal_replicas(const Program& program) {
  if (!program.placement.looks_at_micro_batch()) return;
  for (int part = 0; part < size_along(program.devices, kTensorAxis); ++part)
    require_equal_replicas(program, part);
}

/// Whether the rank has an action of this kind before its first OPT and between any two OPTs.
bool precedes_updates(const Program& program, RankId rank, ActionKind kind) {
  bool is_there = false;
  for (const Instruction& in : program.rank_code(rank)) {
    if (in.kind == kind) is_there = true;
    if (in.kind == ActionKind::Opt && !std::exchange(is_there, false)) return false;
  }
  return true;
}

/// Clipping needs the norm over all ranks, so the Program has to take it before each update.
void require_norms(const Program& program, const Training& training) {
  if (training.optimizer.clip_grad_norm <= 0 || program.ranks() == 1) return;
  for (int r = 0; r < program.ranks(); ++r) {
    if (!precedes_updates(program, RankId(r), ActionKind::ReduceNorm))
      refuse_training("rank " + std::to_string(r) +
                      " clips its gradients, but has an OPT without a REDUCE_NORM before it");
  }
}

/// A table in two stages stays one only if the Program sums its gradients.
void require_ties(const Program& program, const Training& training) {
  if (training.mode != RunMode::Train) return;
  const std::vector<StageId> tied = tied_stages(*training.model, training.stages);
  if (tied.empty()) return;
  if (program.asynchronous)
    refuse_training(
        "an asynchronous schedule updates its stages at different times, so they cannot share "
        "the weights of a tied head; take a synchronous schedule, or an untied head");
  for (int r = 0; r < program.ranks(); ++r) {
    const auto own = program.placement.stages_of(RankId(r));
    const bool holds =
        std::find_first_of(own.begin(), own.end(), tied.begin(), tied.end()) != own.end();
    if (holds && !precedes_updates(program, RankId(r), ActionKind::ReduceTied))
      refuse_training(
          "rank " + std::to_string(r) +
          " holds a part of a tied head, but has an OPT without a REDUCE_TIED before it");
  }
}

}  // namespace

StageDivision division_of(const Program& program, const Training& training) {
  return {size_along(program.devices, kTensorAxis),
          size_along(program.devices, kExpertAxis),
          training.options.ranks.rows,
          size_along(program.devices, kContextAxis),
          training.options.ranks.fold,
          training.options.ranks.ring};
}

void require_fit(const Program& program, const Training& training) {
  require_sizes(program, training);
  require_division(program, training);
  require_row_division(program, training);
  require_layers(training);
  require_parts(program, training);
  require_equal_replicas(program);
  require_norms(program, training);
  require_ties(program, training);
  if (program.asynchronous && training.verified_steps > 0) {
    throw InputError(
        "an asynchronous schedule trains with older weights than a serial run does, so there is "
        "nothing to agree with; leave out --verify");
  }
}

}  // namespace pipewright::exec::cpu
