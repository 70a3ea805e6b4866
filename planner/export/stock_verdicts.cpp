#include "planner/export/stock_verdicts.hpp"

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "planner/export/export.hpp"
#include "planner/export/megatron_interleaved.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "sim/engine.hpp"

namespace pipewright::planner {
namespace {

/// One way in which a framework runs an order.
struct FrameworkRun {
  std::string name;
  Order list;
  CommPolicy policy;
};

/// What a framework does as it is installed, and the flag of check that says why it does not end.
struct Framework {
  std::string_view name, flag;
  std::vector<FrameworkRun> ways;
};

Framework under_presets(std::string_view name, const std::vector<std::string_view>& presets,
                        const Order& order) {
  Framework framework{name, "--preset NAME", {}};
  for (const std::string_view preset : presets)
    framework.ways.push_back({std::string(preset), order, comm_policy_preset(preset)});
  return framework;
}

/// By its flags; without overlap it wants more than two ranks. Its groups are made without a
/// device.
Framework megatron_interleaved(const Order& order) {
  Framework framework{"Megatron-LM", "--megatron EXCHANGE", {}};
  for (const auto exchange :
       {MegatronExchange::Overlap, MegatronExchange::WarmupFlush, MegatronExchange::Batched}) {
    if (exchange == MegatronExchange::Batched && order.rank_count() == 2) continue;
    framework.ways.push_back(
        {"--megatron " + std::string(to_string(exchange)),
         megatron_interleaved_list(order, exchange),
         megatron_interleaved_policies(exchange, order.rank_count()).front().policy});
  }
  return framework;
}

/// Throws InputError where the framework does not run the order.
Framework framework_of(bool is_megatron, const Order& order) {
  if (!is_megatron) return under_presets("PyTorch", stock_torch_presets(), order);
  if (order.stages() > order.rank_count()) return megatron_interleaved(order);
  return under_presets("Megatron-LM", {"megatron-even-odd", "megatron-batched"}, order);
}

std::string list_of_bad(const Framework& framework, const CostTable& costs) {
  std::string list;
  for (const FrameworkRun& way : framework.ways) {
    const Verdict verdict = sim::check(lower(way.list, way.policy), costs).verdict;
    if (verdict == Verdict::Ok) continue;
    list += (list.empty() ? "" : ", ") + std::string(to_string(verdict)) + " under " + way.name;
  }
  return list;
}

}  // namespace

std::vector<std::string> stock_verdicts(const Plan& plan, std::string_view format) {
  const bool is_megatron = format == "megatron";
  const bool is_pytorch = format == "pytorch-csv" || format == "torchtitan";
  if ((!is_megatron && !is_pytorch) || plan.ranks() < 2) return {};
  const Order order = pipeline_order(plan);
  Framework framework;
  try {
    framework = framework_of(is_megatron, order);
  } catch (const InputError& refusal) {
    return {refusal.what()};
  }
  const std::string list = list_of_bad(framework, plan.costs);
  if (list.empty()) return {};
  return {"this plan's order does not end as stock " + std::string(framework.name) +
          " communicates: " + list +
          "; the plan itself is for the policy that it names (check FILE " +
          std::string(framework.flag) + " says why)"};
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
