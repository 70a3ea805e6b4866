#include "planner/branches/space.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/tie.hpp"
#include "planner/configurations/requested_values.hpp"
#include "planner/configurations/stage_replicas.hpp"

namespace pipewright::planner {

namespace {

/// What a rule about degrees, devices and batch has looked at.
std::string numbers_of(const ParallelSetup& setup, const Job& job) {
  const std::pair<const char*, int> degrees[] = {
      {"tp", setup.tensor}, {"pp", setup.pipeline}, {"cp", setup.context}, {"dp", setup.data}};
  std::string text;
  for (const auto& [name, degree] : degrees) {
    if (degree > 1) text += std::string(name) + " " + std::to_string(degree) + ", ";
  }
  if (setup.micro_batches > 1) text += std::to_string(setup.micro_batches) + " micro-batches, ";
  if (setup.micro_batch_size > 1)
    text += "micro-batches of " + std::to_string(setup.micro_batch_size) + ", ";
  return text + std::to_string(job.cluster.devices()) + " devices, a global batch of " +
         std::to_string(job.global_batch) + " and " + std::to_string(job.model.layers.size()) +
         " layers";
}

}  // namespace

SearchSpace search_space(const Job& job, const ConfigurationCosts& costs) {
  if (job.global_batch < 1) {
    throw InputError("global_batch: expected a positive number of samples a step, found " +
                     std::to_string(job.global_batch));
  }
  const auto walk = [&](const std::vector<int>& pipeline, std::vector<ParallelSetup>& meshes,
                        LeftOutTally& left_out) {
    walk_space(
        {[&](const SpaceVisitor& visitor) { costs.for_each_mesh(pipeline, visitor); },
         [&](const ParallelSetup& mesh) { return costs.refusal(mesh); },
         [&](const ParallelSetup& setup) { return numbers_of(setup, job); }},
        [&](const ParallelSetup& mesh) { meshes.push_back(mesh); }, left_out);
  };
  SearchSpace space;
  walk({}, space.meshes, space.left_out);
  LeftOutTally of_comparison;  // the job rules them out anyway
  if (!admits(asked_ranks(job.strategy), 1)) walk({1}, space.only_to_compare, of_comparison);
  return space;
}

namespace {

/// Whether more than one rank may divide a stage: then one rank alone is a choice, too.
bool divides_stages(const Strategy& strategy) {
  const auto names_several = [](const Choice& degrees) {
    return std::any_of(degrees.begin(), degrees.end(),
                       [](const std::string& degree) { return degree != "1"; });
  };
  return strategy.opens_mp_degree || strategy.opens_cp_degree ||
         names_several(strategy.mp_degree) || names_several(strategy.cp_degree);
}

}  // namespace

ShapeChoices::ShapeChoices(const Job& job, bool is_estimated)
    : layers_(static_cast<int>(job.model.layers.size())),
      is_tied_(tie_of(job.model).has_value()),
      clips_(job.training.clip_grad_norm > 0),
      is_estimated_(is_estimated),
      divides_stages_(divides_stages(job.strategy)),
      chunks_asked_(asked_numbers(job.strategy.vpp_degree, "vpp_degree")),
      replicas_asked_(job.strategy.stage_replicas) {
  for (const std::string& name : job.strategy.schedule_mode) asked_.push_back(&find_schedule(name));
  std::sort(replicas_asked_.begin(), replicas_asked_.end());
  replicas_asked_.erase(std::unique(replicas_asked_.begin(), replicas_asked_.end()),
                        replicas_asked_.end());
  const auto has_replicas = [](const Schedule* schedule) {
    return schedule->layout == Layout::Replicas;
  };
  if (!replicas_asked_.empty() &&
      (asked_.empty() || !std::all_of(asked_.begin(), asked_.end(), has_replicas))) {
    throw InputError(
        "stage_replicas: only the stages of 1f1b-rr have replicas; say \"schedule_mode\": "
        "\"1f1b-rr\", or leave stage_replicas out");
  }
}

bool ShapeChoices::allows_baseline() const {
  return admits(chunks_asked_, 1) &&
         (asked_.empty() ||
          std::find(asked_.begin(), asked_.end(), &find_schedule("naive")) != asked_.end());
}

bool ShapeChoices::may_overlap() const {
  const auto several = schedules_for(2, false);
  return std::any_of(several.begin(), several.end(),
                     [](const Schedule* schedule) { return schedule->traits.overlaps; });
}

std::vector<const Schedule*> ShapeChoices::schedules_for(int ranks, bool has_other_devices) const {
  std::vector<const Schedule*> list;
  for (const Schedule& schedule : schedules()) {
    if (schedule.name == "naive") {
      const bool is_choice = is_estimated_ || has_other_devices;
      if (is_choice && ranks == 1 && allows_baseline()) list.push_back(&schedule);
      continue;
    }
    const bool has_layout =
        schedule.layout == Layout::Loop || (is_estimated_ && schedule.layout == Layout::V);
    const bool automatic = asked_.empty() && schedule.policy.empty() && ranks > 1 && has_layout &&
                           !schedule.traits.asynchronous && !schedule.traits.searched;
    const bool named = std::find(asked_.begin(), asked_.end(), &schedule) != asked_.end();
    if (automatic || named) list.push_back(&schedule);
  }
  return list;
}

std::vector<int> ShapeChoices::chunks_for(const Schedule& schedule, int ranks) const {
  if (!chunks_asked_.empty()) return chunks_asked_;
  if (schedule.default_chunks == 1) return {1};
  std::vector<int> list;
  for (int v = schedule.default_chunks; v <= layers_ / ranks; v *= 2) list.push_back(v);
  return list;
}

std::optional<Shape> ShapeChoices::baseline_on(const ParallelSetup& mesh) const {
  const Schedule& naive = find_schedule("naive");
  const ScheduleRequest request{mesh.pipeline, mesh.micro_batches};
  if (refusal_of(naive, request) || mesh.pipeline > layers_) return std::nullopt;
  return Shape{&naive, 1, placement_of(naive, request), {}};
}

namespace {

/// Why the schedule cannot have these replicas on the mesh.
std::optional<std::string> refusal_of_replicas(const Schedule& schedule, const ParallelSetup& mesh,
                                               const std::vector<int>& stage_replicas) {
  ParallelSetup setup = mesh;
  setup.stage_replicas = stage_replicas;
  return refusal_of(schedule, request_of(setup));
}

}  // namespace

void ShapeChoices::Shapes::refuse(const Schedule& schedule, const std::string& reason) {
  left_out.add({LeftOut::OutsideConstraint, schedule.name}, [&] { return reason; });
}

void ShapeChoices::add_replicated(const Schedule& schedule, const ParallelSetup& mesh,
                                  Shapes& shapes) const {
  const auto add = [&](const std::vector<int>& stage_replicas) {
    shapes.list.push_back({&schedule, 1, first_placement(stage_replicas), stage_replicas});
  };
  for (const std::vector<int>& asked : replicas_asked_) {
    if (const auto reason = refusal_of_replicas(schedule, mesh, asked)) {
      shapes.refuse(schedule, *reason);
    } else if (static_cast<int>(asked.size()) > layers_) {
      shapes.left_out.add(LeftOut::FewerLayersThanStages);
    } else {
      add(asked);
    }
  }
  if (!replicas_asked_.empty()) return;
  const Replications possible = replications_of(mesh.pipeline, mesh.micro_batches, layers_);
  for (const std::vector<int>& stage_replicas : possible.all) add(stage_replicas);
  for (const int stages : possible.stage_counts)
    shapes.list.push_back({&schedule, 1, Placement::loop(stages, 1), {}});
  if (possible.all.empty() && possible.stage_counts.empty())
    shapes.left_out.add(LeftOut::FewerLayersThanStages);
}

ShapeChoices::Shapes ShapeChoices::on(const ParallelSetup& mesh) const {
  Shapes shapes;
  const bool has_parts_of_sequences = mesh.context > 1 && !is_estimated_;
  for (const Schedule* schedule :
       schedules_for(mesh.pipeline, mesh.data > 1 || mesh.tensor > 1 || divides_stages_)) {
    for (const int chunks : chunks_for(*schedule, mesh.pipeline)) {
      if ((mesh.data > 1 || has_parts_of_sequences) && schedule->traits.asynchronous) {
        shapes.left_out.add(LeftOut::AsynchronousWithReplicas);
        continue;
      }
      if (mesh.tensor > 1 && schedule->traits.asynchronous && !is_estimated_) {
        shapes.left_out.add(LeftOut::AsynchronousWithDividedLayers);
        continue;
      }
      if (is_tied_ && schedule->traits.asynchronous) {
        shapes.left_out.add(LeftOut::AsynchronousWithTiedHead);
        continue;
      }
      if (clips_ && schedule->traits.asynchronous) {
        shapes.left_out.add(LeftOut::AsynchronousWithClipping);
        continue;
      }
      if (schedule->layout == Layout::Replicas && chunks == 1) {
        add_replicated(*schedule, mesh, shapes);
        continue;
      }
      const ScheduleRequest request{mesh.pipeline, mesh.micro_batches, chunks, {}};
      if (const auto reason = refusal_of(*schedule, request)) {
        shapes.refuse(*schedule, *reason);
        continue;
      }
      Placement placement = placement_of(*schedule, request);
      if (placement.stages() > layers_) {
        shapes.left_out.add(LeftOut::FewerLayersThanStages);
        continue;
      }
      shapes.list.push_back({schedule, chunks, std::move(placement), {}});
    }
  }
  return shapes;
}

}  // namespace pipewright::planner
