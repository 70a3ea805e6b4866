#include "planner/export/stock_verdicts.hpp"

#include "core/program/lower.hpp"
#include "planner/export/export.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

struct Framework {
  std::string_view name;
  std::vector<std::string_view> presets;
};

Framework framework_of(std::string_view format) {
  if (format == "pytorch-csv" || format == "torchtitan") return {"PyTorch", stock_torch_presets()};
  if (format == "megatron") return {"Megatron-LM", {"megatron-even-odd", "megatron-batched"}};
  return {};
}

}  // namespace

std::vector<std::string> stock_verdicts(const Plan& plan, std::string_view format) {
  const Framework framework = framework_of(format);
  if (framework.presets.empty() || plan.ranks() < 2) return {};
  // Interleaved, Megatron-LM posts the receive of its next forward with the send of the last one,
  // earlier than both of its presets.
  const bool interleaved = plan.stages.size() > static_cast<std::size_t>(plan.ranks());
  if (format == "megatron" && interleaved) return {};
  const Order order = pipeline_order(plan);
  std::string list;
  for (const std::string_view preset : framework.presets) {
    const Verdict verdict =
        sim::check(lower(order, comm_policy_preset(preset)), plan.costs).verdict;
    if (verdict == Verdict::Ok) continue;
    list += (list.empty() ? "" : ", ") + std::string(to_string(verdict)) + " under " +
            std::string(preset);
  }
  if (list.empty()) return {};
  return {"this plan's order does not end as stock " + std::string(framework.name) +
          " communicates: " + list +
          "; the plan itself is for the policy that it names (check FILE --preset NAME says why)"};
}

std::vector<std::string> stock_verdicts(const Plan& plan) {
  std::vector<std::string> sentences;
  for (const std::string_view format : {"pytorch-csv", "megatron"}) {
    if (!find_export_format(format).write(plan).refusals.empty()) continue;
    for (std::string& sentence : stock_verdicts(plan, format))
      sentences.push_back(std::move(sentence));
  }
  return sentences;
}

}  // namespace pipewright::planner
