#include "planner/export/export.hpp"

#include <algorithm>
#include <array>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "planner/plans/program_of_plan.hpp"

namespace pipewright::planner {
namespace {

constexpr std::array<ExportFormat, 6> kFormats{{
    {"pytorch-csv", "PyTorch 2.13, torch.distributed.pipelining",
     "the order of one pipeline, as its runtime loads it",
     [](const Plan& plan) { return export_pytorch_csv(plan, TorchRelease::V2_13); }},
    {"megatron", "Megatron-LM core 0.16", "a bash array of flags, with the pipeline layout string",
     export_megatron},
    {"torchtitan", "torchtitan 0.3", "a bash array of its command line's flags", export_torchtitan},
    {"paddle", "PaddlePaddle 3.3",
     "JSON for paddle.distributed.Strategy, and fleet's hybrid_configs", export_paddle},
    {"paddle-tuner", "PaddlePaddle 3.3, launch --auto_tuner_json",
     "JSON with the plan as the one configuration to try", export_paddle_tuner},
    {"deepspeed", "DeepSpeed 0.19",
     "the engine's JSON, with what a PipelineModule is constructed with", export_deepspeed},
}};

}  // namespace

std::span<const ExportFormat> export_formats() { return kFormats; }

const ExportFormat& find_export_format(std::string_view name) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(),
                                  [&](const ExportFormat& format) { return format.name == name; });
  if (found != kFormats.end()) return *found;
  std::vector<std::string_view> names;
  std::string list;
  for (const ExportFormat& format : kFormats) {
    names.push_back(format.name);
    list += (list.empty() ? "" : ", ") + std::string(format.name);
  }
  throw InputError("unknown format \"" + std::string(name) + "\"" + did_you_mean(name, names) +
                   "; the formats are " + list);
}

ExportedPlan export_pytorch_csv(const Plan& plan, TorchRelease release) {
  ExportedPlan result;
  const Order order = pipeline_order(plan);
  if (const auto refusal = torch_refusal_of(order)) {
    result.refusals.push_back(*refusal);
    return result;
  }
  const TorchFile file = torch_file(order, release);
  result.text = file.csv;
  if (file.format == "compute_comms") {
    result.notes.push_back(
        "the order writes more than its computations, so the file has every "
        "action of PyTorch " +
        std::string(to_string(release)) +
        ": load it with _load_csv(file, format=\"compute_comms\")");
  }
  if (plan.replicas() > 1) {
    result.notes.push_back("the order is that of one of " + std::to_string(plan.replicas()) +
                           " replicas; all have the same");
  }
  bool loop = true;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    loop = loop && plan.stages[stage].rank.value == static_cast<int>(stage) % plan.ranks();
  }
  if (!loop) {
    result.notes.push_back(
        "the rows do not say where a stage is; PyTorch puts stage s on rank s mod the ranks unless "
        "the schedule's class says otherwise, and this plan does not");
  }
  return result;
}

}  // namespace pipewright::planner
