#include "exec/devices/cpu/checkpointing.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "core/base/error.hpp"
#include "core/model/difference.hpp"
#include "core/order/devices.hpp"
#include "core/plan/rank_axes.hpp"
#include "exec/devices/cpu/divided_arrays.hpp"
#include "exec/devices/cpu/host_ops.hpp"
#include "exec/devices/cpu/training_fit.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/tied_head.hpp"

namespace pipewright::exec::cpu {
namespace {

std::string name_of(OptimizerKind kind) { return kind == OptimizerKind::Sgd ? "sgd" : "adamw"; }

/// The arrays of every parameter and their sizes, declared layer by layer.
template <class Visit>
void for_each_array(const Training& training, Visit visit) {
  const int layers = static_cast<int>(training.model->layers.size());
  for (int i = 0; i < layers; ++i) {
    BufferPool pool;
    HostOps ops(pool, Numerics::Fast);
    const auto table = shared_table_of(*training.model);  // the layer before is gone
    LayerSite site{{training.micro_batch_size, training.model->sequence},
                   &ops,
                   training.seed,
                   layer_path("", i, training.model->layers[static_cast<std::size_t>(i)]),
                   width_in_front_of(*training.model, i)};
    site.shared_table = table.get();
    const auto layer = make_layer(training.model->layers[static_cast<std::size_t>(i)], site);
    std::vector<Parameter*> parameters;
    layer->collect(parameters);
    for (const Parameter* p : parameters) {
      const std::int64_t size =
          p->value.empty() ? p->start.size : static_cast<std::int64_t>(p->value.size());
      visit(p->name, kValueSlot, size);
      if (p->is_statistic || training.mode != RunMode::Train) continue;  // without an optimizer
      for (const auto slot : slot_names(training.optimizer.kind)) visit(p->name, slot, size);
    }
  }
}

void require_same_model(const Checkpoint& checkpoint, const Training& training) {
  const std::string other =
      model_difference(checkpoint.facts().model, "the checkpoint", *training.model, "the plan");
  if (other.empty()) return;
  throw InputError(checkpoint.folder().string(), "",
                   "holds another model (" + other + "); load a checkpoint of this plan's model");
}

/// Looks at all arrays, also at those that are not needed: what an optimizer has kept, where the
/// run only evaluates.
void require_sizes(const Checkpoint& checkpoint,
                   const std::map<std::string, std::int64_t>& elements) {
  for (const auto& [name, size] : checkpoint.sizes()) {
    const auto& [parameter, slot] = name;
    const std::string what = "\"" + parameter + "\" (" + slot + ")";
    const auto found = elements.find(parameter);
    if (found == elements.end())
      throw InputError(checkpoint.folder().string(), "",
                       "holds " + what + ", which its model does not have");
    if (found->second == size) continue;
    throw InputError(checkpoint.folder().string(), "",
                     what + " has " + std::to_string(size) + " elements there and " +
                         std::to_string(found->second) + " in the plan's model");
  }
}

void require_arrays(const Checkpoint& checkpoint, const Training& training) {
  std::map<std::string, std::int64_t> elements;
  for_each_array(training, [&](const std::string& name, std::string_view slot, std::int64_t size) {
    const auto found = checkpoint.size_of(name, slot);
    elements[name] = size;
    if (!found) {
      const std::string what = "\"" + name + "\" (" + std::string(slot) + ")";
      const bool moments = slot != kValueSlot && checkpoint.size_of(name, kValueSlot).has_value();
      throw InputError(
          checkpoint.folder().string(), "",
          moments ? "was trained with " + checkpoint.facts().optimizer + " and does not hold " +
                        what + ", which " + name_of(training.optimizer.kind) +
                        " needs; train with the same optimizer"
                  : "does not hold " + what + "; load a whole checkpoint of this model");
    }
  });
  require_sizes(checkpoint, elements);
}

/// A checkpoint holds one count of updates for all parameters.
int equal_updates(std::optional<int> before, int now) {
  if (!before || *before == now) return now;
  throw InputError("the stages of this schedule update at different rates (" +
                   std::to_string(*before) + " and " + std::to_string(now) +
                   " updates so far), which a checkpoint cannot say; leave out "
                   "--save-checkpoint");
}

/// What a process has written.
struct Written {
  int updates = 0;
  std::vector<CheckpointPart> parts;
};

/// What all processes have written; they have, when this returns.
Written gathered(const Written& own, Peers& peers) {
  Packer packer;
  packer.put<int>(own.updates);
  for (const CheckpointPart& part : own.parts) packer.put_text(to_json(part).dump());
  Written all;
  std::optional<int> updates;
  for (const PackedBytes& bytes : peers.share(packer.take())) {
    Unpacker unpacker(bytes);
    updates = equal_updates(updates, unpacker.get<int>());
    while (!unpacker.empty()) {
      const Json part = parse_json(unpacker.get_text(), "another process");
      all.parts.push_back(read_checkpoint_part(JsonCursor(part, "another process")));
    }
  }
  all.updates = updates.value_or(own.updates);
  return all;
}

}  // namespace

void require_resumable(const Checkpoint& checkpoint, const Program& program,
                       const Training& training) {
  require_same_model(checkpoint, training);
  require_arrays(checkpoint, training);
  const CheckpointFacts& facts = checkpoint.facts();
  if (program.asynchronous || training.mode != RunMode::Train || facts.updates == facts.step ||
      training.optimizer.kind == OptimizerKind::Sgd)
    return;
  throw InputError(checkpoint.folder().string(), "",
                   "comes from an asynchronous schedule, which made " +
                       std::to_string(facts.updates) + " updates in " + std::to_string(facts.step) +
                       " steps; adamw counts them, and a synchronous schedule has one a step: go "
                       "on with an asynchronous schedule");
}

std::vector<std::string> resume_notes(const Checkpoint& checkpoint, const Training& training) {
  const CheckpointFacts& facts = checkpoint.facts();
  std::vector<std::string> notes;
  const auto note = [&](const std::string& what, const std::string& before,
                        const std::string& now) {
    if (before != now)
      notes.push_back("the checkpoint was made with " + what + " " + before + ", this plan has " +
                      now + ": the numbers are not those that the first run would have given");
  };
  const std::string cut =
      std::to_string(facts.micro_batches) + " x " + std::to_string(facts.micro_batch_size);
  const std::string own_cut =
      std::to_string(training.micro_batches) + " x " + std::to_string(training.micro_batch_size);
  if (std::int64_t{facts.micro_batches} * facts.micro_batch_size ==
          std::int64_t{training.micro_batches} * training.micro_batch_size &&
      cut != own_cut) {
    notes.push_back("the checkpoint was made with micro-batches " + cut + ", this plan has " +
                    own_cut + ": each step has the same samples, and its sums round otherwise");
  } else {
    note("micro-batches", cut, own_cut);
  }
  note("seed", std::to_string(facts.seed), std::to_string(training.seed));
  note("numerics", facts.numerics, training.options.numerics == Numerics::Exact ? "exact" : "fast");
  note("optimizer", facts.optimizer, name_of(training.optimizer.kind));
  return notes;
}

void restore(TrainableStage& stage, const Checkpoint& checkpoint) {
  stage.make_room_for_state();
  for (const StateView& view : stage.state()) read_own(checkpoint, view);
  stage.store_state();
  stage.set_updates(checkpoint.facts().updates);
}

CheckpointSaver::CheckpointSaver(const Program& program, const Training& training, int steps,
                                 bool leads)
    : program_(program), training_(training), steps_(steps) {
  PIPEWRIGHT_ASSERT(training.save.has_value(), "nothing is to be saved");
  if (!leads) return;
  lock_.emplace(training.save->folder);
  remove_unfinished_checkpoints(training.save->folder, training.save->watch);
}

bool CheckpointSaver::is_due(int step) const {
  const int every = training_.save->every;
  return step + 1 == steps_ || (every > 0 && (training_.first_step() + step + 1) % every == 0);
}

void CheckpointSaver::after_step(int step, const std::vector<TrainedRank>& ranks,
                                 Peers* peers) const {
  if (!is_due(step)) return;
  const CheckpointSpec& spec = *training_.save;
  const int done = training_.first_step() + step + 1;
  const std::filesystem::path folder = checkpoint_folder(spec.folder, done);
  const Written own{updates(done, ranks), write_parts(folder, ranks)};
  const Written all = peers == nullptr ? own : gathered(own, *peers);
  if (peers != nullptr && peers->process() != 0) return;
  write_manifest(folder, facts(done, all.updates), all.parts, spec.watch);
  if (spec.keep > 0) prune_checkpoints(spec.folder, spec.keep, spec.watch);
}

/// Of this process's ranks. If the disk does not take one, those already written are removed; no
/// manifest names them yet.
std::vector<CheckpointPart> CheckpointSaver::write_parts(
    const std::filesystem::path& folder, const std::vector<TrainedRank>& ranks) const {
  std::vector<CheckpointPart> parts;
  try {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const RankId rank(static_cast<std::int64_t>(r));
      if (ranks[r].is_here()) parts.push_back(write_part(folder, rank, ranks));
    }
  } catch (...) {
    remove_parts(folder, parts, training_.save->watch);
    throw;
  }
  return parts;
}

bool CheckpointSaver::owns(RankId rank, StageId stage) const {
  for (int r = 0; r < rank.value; ++r) {
    const auto stages = program_.placement.stages_of(RankId(r));
    if (std::find(stages.begin(), stages.end(), stage) != stages.end()) return false;
  }
  return true;
}

/// Those that are the group with it.
std::vector<RankId> CheckpointSaver::block_of(RankId rank, std::string_view group) const {
  const auto span = span_of(program_.devices, group);
  if (!span) return {rank};
  return ranks_in(*span, rank);
}

/// All ranks that divide a stage write at the same time where they are processes: they meet at each
/// array that they divide.
CheckpointPart CheckpointSaver::write_part(const std::filesystem::path& folder, RankId rank,
                                           const std::vector<TrainedRank>& ranks) const {
  CheckpointPartWriter writer(folder, static_cast<int>(rank.value), training_.save->watch);
  const std::vector<RankId> along_tp = block_of(rank, kTensorAxis);
  const std::vector<RankId> along_ep =
      block_of(rank, expert_group_name(division_of(program_, training_)));
  const TrainedRank& own = ranks[static_cast<std::size_t>(rank.value)];
  for (const StageId id : program_.placement.stages_of(rank)) {
    const std::vector<StateView> state = own.stage(id).state();
    for (std::size_t k = 0; k < state.size(); ++k) {
      const StateView& view = state[k];
      if (view.is_copy) continue;
      const std::vector<RankId>& block = view.is_of_experts ? along_ep : along_tp;
      const bool is_owner = owns(block.front(), id);
      // Of what replicas divide among them, each writes its own part.
      if (view.is_shared_out ? view.values.empty() : !is_owner) continue;
      if (view.slice.is_whole()) {
        writer.add({view.parameter, std::string(view.slot), view.first, view.total, view.values});
        continue;
      }
      const GroupsOfRank& groups = *own.groups;
      write_divided({block, id, k}, ranks,
                    (view.is_of_experts ? groups.experts : groups.tensor).get(), view, writer);
    }
  }
  return writer.finish();
}

int CheckpointSaver::updates(int step, const std::vector<TrainedRank>& ranks) const {
  if (!program_.asynchronous) return step;
  std::optional<int> updates;
  for (const TrainedRank& rank : ranks) {
    for (const TrainableStage* stage : rank.stages) {
      if (stage != nullptr) updates = equal_updates(updates, stage->updates());
    }
  }
  return updates.value_or(step);
}

CheckpointFacts CheckpointSaver::facts(int step, int updates) const {
  return {.model = *training_.model,
          .step = step,
          .updates = updates,
          .optimizer = name_of(training_.optimizer.kind),
          .seed = training_.seed,
          .numerics = training_.options.numerics == Numerics::Exact ? "exact" : "fast",
          .micro_batches = training_.micro_batches,
          .micro_batch_size = training_.micro_batch_size};
}

}  // namespace pipewright::exec::cpu
