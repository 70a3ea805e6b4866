#include "tools/running/run_inputs.hpp"

#include <algorithm>
#include <cstdio>
#include <span>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/order/comm_policy.hpp"
#include "exec/base/checksum.hpp"
#include "exec/base/packing.hpp"
#include "exec/checkpoint/checkpoint_json.hpp"
#include "exec/runtime/program_checksum.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/input/subject.hpp"
#include "tools/running/cuda_flags.hpp"
#include "tools/running/forward_run.hpp"

namespace pipewright::tools {
namespace {

constexpr std::size_t kLongestValue = 60;
constexpr std::size_t kMostValues = 4;  // of one input, in the sentence

std::string checksum_text(std::uint64_t checksum) {
  char text[40];
  std::snprintf(text, sizeof text, "checksum %016llx", static_cast<unsigned long long>(checksum));
  return text;
}

std::uint64_t seal_of_text(std::string_view text) {
  return exec::checksum_of(std::as_bytes(std::span(text.data(), text.size())), {});
}

std::string value_of(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.size() <= kLongestValue) return text;
  const auto name = value.is_object() ? value.find("name") : value.end();
  const bool has_name = name != value.end() && name->is_string();
  return (has_name ? name->get<std::string>() + ", " : "") + checksum_text(seal_of_text(text));
}

const char* yes_or_no(bool value) { return value ? "yes" : "no"; }

/// What each instruction and each message of the Program costs, whichever way the table says it.
std::uint64_t seal_of_costs(const Program& program, const CostTable& costs) {
  exec::Packer packer;
  for (InstructionId id = 0; id < program.code.size(); ++id)
    packer.put<std::int64_t>(costs.duration(program, id).value);
  for (const Route& route : program.routes)
    packer.put<std::int64_t>(costs.transfer_time(route, program.ranks()).value);
  for (const std::int64_t bytes : costs.message_bytes(program)) packer.put<std::int64_t>(bytes);
  for (const Collective& collective : program.collectives)
    packer.put<std::int64_t>(costs.collective_time(collective, program.ranks()).value);
  return exec::checksum_of(packer.take(), {});
}

/// All keys but those that say what was predicted, and those that a flag may have replaced, which
/// are taken from the run.
void add_plan(const Plan& plan, RunInputs& inputs) {
  Json document = to_json(plan);
  Json training = document.at("training");
  for (const char* key : {"schema", "cluster_fingerprint", "policy", "costs", "predicted",
                          "executable", "training", "tuner"})
    document.erase(key);
  for (const auto& [key, value] : document.items()) inputs.push_back({key, value_of(value)});
  for (const char* key : {"data", "steps", "assumed"}) training.erase(key);
  training["clip_grad_norm"] = plan.training.clip_grad_norm;  // left out where it is 0
  for (const auto& [key, value] : training.items())
    inputs.push_back({"training." + key, value_of(value)});
}

void add_checkpoints(const exec::cpu::Training& training, RunInputs& inputs) {
  if (training.start != nullptr) {
    const std::string manifest =
        read_text((training.start->folder() / exec::kManifestName).string());
    inputs.push_back({"load-checkpoint", "step " + std::to_string(training.start->facts().step) +
                                             ", " + checksum_text(seal_of_text(manifest))});
  }
  if (!training.save) return;
  inputs.push_back({"save-checkpoint", (training.save->folder / "").lexically_normal().string()});
  inputs.push_back({"checkpoint-every", std::to_string(training.save->every)});
  inputs.push_back({"keep-checkpoints", std::to_string(training.save->keep)});
}

std::string text_of(GraphUse use) {
  if (use == GraphUse::WhereAllowed) return "where allowed";
  return yes_or_no(use == GraphUse::Always);
}

void add_cuda(const CudaRequest& cuda, RunInputs& inputs) {
  inputs.push_back({"precision", precision_text(cuda.precision)});
  inputs.push_back({"cuda-graph", text_of(cuda.graph)});
  inputs.push_back({"transport nccl", yes_or_no(cuda.over_nccl)});
  inputs.push_back({"trace-kernels", yes_or_no(cuda.records_work)});
  std::string held;
  for (const std::int64_t ns : cuda.hold_ns) held += std::to_string(ns) + " ";
  inputs.push_back({"slow-link", value_of(held)});
}

/// "rank 1", "ranks 0, 2-4 and 7"; ascending.
std::string ranks_text(const std::vector<std::size_t>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    const bool is_range = last > i + 1;
    runs.push_back(std::to_string(ranks[i]) +
                   (is_range ? "-" + std::to_string(ranks[last]) : std::string()));
    i = is_range ? last + 1 : i + 1;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < runs.size(); ++i)
    text += (i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ") + runs[i];
  return text;
}

struct Group {
  std::string value;
  std::vector<std::size_t> ranks;
};

std::string value_on(const RunInputs& inputs, const std::string& name) {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const RunInput& one) { return one.name == name; });
  return found == inputs.end() ? "not given" : found->value;
}

/// Ranks by the value that they have, in the order of the first of each.
std::vector<Group> groups_of(const std::vector<RunInputs>& by_rank, const std::string& name) {
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::string value = value_on(by_rank[rank], name);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& one) { return one.value == value; });
    if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
    group->ranks.push_back(rank);
  }
  return groups;
}

std::string difference_line(const std::string& name, const std::vector<Group>& groups) {
  std::string line = "  " + name + ": ";
  for (std::size_t i = 0; i < std::min(groups.size(), kMostValues); ++i)
    line += (i > 0 ? "; " : "") + groups[i].value + " on " + ranks_text(groups[i].ranks);
  if (groups.size() > kMostValues)
    line += "; and " + std::to_string(groups.size() - kMostValues) + " more values";
  return line + "\n";
}

std::string packed(const RunInputs& inputs) {
  Json pairs = Json::array();
  for (const RunInput& input : inputs) pairs.push_back(Json::array({input.name, input.value}));
  return pairs.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunInputs unpacked(const std::string& text) {
  RunInputs inputs;
  const Json pairs = parse_json(text, "another process");
  for (const JsonCursor& pair : JsonCursor(pairs, "another process").elements())
    inputs.push_back({pair.elements().at(0).string(), pair.elements().at(1).string()});
  return inputs;
}

}  // namespace

RunInputs inputs_of_run(const Program& program, const CostTable& costs, const std::string& device,
                        int steps, bool verify_payloads) {
  return {{"pipewright", PIPEWRIGHT_VERSION},
          {"device", device},
          {"order of work", checksum_text(exec::checksum_of(program))},
          {"policy", policy_text(program.policy)},
          {"costs", checksum_text(seal_of_costs(program, costs))},
          {"steps", std::to_string(steps)},
          {"verify-payloads", yes_or_no(verify_payloads)}};
}

RunInputs inputs_of_training(const Plan& plan, const Program& program,
                             const exec::cpu::Training& training, int steps, bool verify_payloads,
                             const std::optional<CudaRequest>& cuda) {
  RunInputs inputs =
      inputs_of_run(program, plan.costs, cuda ? "cuda" : "cpu", steps, verify_payloads);
  add_plan(plan, inputs);
  inputs.push_back({"mode", mode_text(training.mode)});
  inputs.push_back({"numerics", std::string(to_string(training.options.numerics))});
  inputs.push_back({"verify", yes_or_no(training.verified_steps > 0)});
  for (const exec::DataContent& content : training.data->contents())
    inputs.push_back({content.name, std::to_string(content.bytes) + " bytes, " +
                                        checksum_text(content.checksum)});
  add_checkpoints(training, inputs);
  if (cuda) add_cuda(*cuda, inputs);
  return inputs;
}

std::string inputs_difference(const std::vector<RunInputs>& by_rank) {
  std::vector<std::string> names;
  for (const RunInputs& inputs : by_rank) {
    for (const RunInput& input : inputs) {
      if (std::find(names.begin(), names.end(), input.name) == names.end())
        names.push_back(input.name);
    }
  }
  std::string text;
  for (const std::string& name : names) {
    const std::vector<Group> groups = groups_of(by_rank, name);
    if (groups.size() > 1) text += difference_line(name, groups);
  }
  return text;
}

void require_same_inputs(exec::mpi::Link& link, const RunInputs& own) {
  std::vector<RunInputs> by_rank;
  for (const std::string& text : exec::mpi::all_gather(link, packed(own), InterruptScope::check))
    by_rank.push_back(unpacked(text));
  const std::string difference = inputs_difference(by_rank);
  if (difference.empty()) return;
  throw InputError("the processes of this job have not been given the same inputs:\n" + difference +
                   "give all of them the same plan, flags and files");
}

}  // namespace pipewright::tools
