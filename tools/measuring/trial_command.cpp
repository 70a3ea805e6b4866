#include "tools/measuring/trial_command.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "exec/base/durable_file.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/export/export.hpp"

namespace pipewright::tools {
namespace {

constexpr std::string_view kFlags = "flags:", kFile = "file:";

/// For /bin/sh, whatever is in it.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// The words of the arrays that a shell would source, on one line; they are quoted as the shell
/// wants them already.
std::string words_of_arrays(const std::string& text) {
  std::istringstream lines(text);
  std::string words;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) words += (words.empty() ? "" : " ") + line.substr(2);
  }
  return words;
}

std::string recompute_word(const planner::SetupRecompute& recompute) {
  if (!recompute.by_stage) return std::string(to_string(recompute.of_all));
  std::string words;
  for (const LayerRecompute kind : recompute.of_stage)
    words += (words.empty() ? "" : "+") + std::string(to_string(kind));
  return words;
}

std::map<std::string, std::string> values_of(const planner::Prospect& prospect, int global_batch) {
  const planner::Candidate& candidate = prospect.candidate;
  const planner::ParallelSetup& parallel = candidate.parallel;
  std::string layers;
  for (const StagePlan& stage : candidate.stages)
    layers += (layers.empty() ? "" : ",") + std::to_string(stage.end_layer - stage.first_layer);
  const auto number = [](int value) { return std::to_string(value); };
  return {{"tp", number(parallel.tensor)},
          {"pp", number(parallel.pipeline)},
          {"dp", number(parallel.data)},
          {"cp", number(parallel.context)},
          {"cp_comm_type", parallel.ring ? "p2p" : "all_gather"},
          {"ep", number(parallel.experts)},
          {"etp", number(parallel.expert_tensor())},
          {"vpp", number(parallel.chunks)},
          {"replicas", planner::replicas_text(parallel.stage_replicas)},
          {"schedule", candidate.schedule},
          {"micro_batch", number(parallel.micro_batch_size)},
          {"micro_batches", number(parallel.micro_batches)},
          {"global_batch", number(global_batch)},
          {"devices", number(parallel.devices())},
          {"recompute", recompute_word(parallel.recompute)},
          {"sequence_parallel", parallel.sequence_parallel ? "on" : "off"},
          {"zero", number(parallel.zero)},
          {"rank_order", std::string(name_of(parallel.order.of_ranks))},
          {"node_order", to_text(parallel.order.of_nodes)},
          {"partition", candidate.partition},
          {"layers", layers},
          {"configuration", prospect.configuration}};
}

}  // namespace

TrialFolder::TrialFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "pipewright-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw MachineError(name + ": the folder cannot be made: " + std::strerror(errno));
  path_ = name;
}

TrialFolder::~TrialFolder() { exec::remove_quietly(path_); }

bool needs_plan(const CommandTemplate& command) {
  return has_placeholder(command, "plan") || has_placeholder(command, kFlags) ||
         has_placeholder(command, kFile);
}

TrialCommand command_of(const CommandTemplate& command, const planner::Prospect& prospect,
                        const std::optional<Plan>& plan, int global_batch,
                        const TrialFolder& folder) {
  TrialCommand result;
  const auto written = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path file = folder.path() / name;
    write_file(file, text);
    return quoted(file.string());
  };
  const auto values = values_of(prospect, global_batch);
  result.command = filled(command, [&](const std::string& name) -> std::string {
    if (const auto value = values.find(name); value != values.end()) return value->second;
    PIPEWRIGHT_ASSERT(plan.has_value(), "a command that needs a plan has none");
    if (name == "plan") return written("plan.json", to_text(to_json(*plan)));
    const bool is_flags = name.starts_with(kFlags);
    const std::string format = name.substr((is_flags ? kFlags : kFile).size());
    const planner::ExportedPlan exported = planner::find_export_format(format).write(*plan);
    if (!exported.refusals.empty()) {
      result.refusal = exported.refusals.front();
      return "";
    }
    return is_flags ? words_of_arrays(exported.text) : written(format, exported.text);
  });
  return result;
}

}  // namespace pipewright::tools
