#include "tools/input/megatron_exchange.hpp"

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/data_parallel.hpp"
#include "planner/plans/program_of_plan.hpp"

namespace pipewright::tools {
namespace {

/// Of every replica of a plan's pipeline, as planner::order_of_plan() has it.
Order list_of(const Subject& subject, planner::MegatronExchange exchange) {
  const Plan* plan = subject.plan();
  if (plan == nullptr) return megatron_list(subject.order, exchange);
  Order list = planner::replicate(megatron_list(planner::pipeline_order(*plan), exchange),
                                  plan->program_replicas());
  list.parts = subject.order.parts;
  list.mesh = subject.order.mesh;
  return list;
}

}  // namespace

Flag megatron_flag(std::string_view group) {
  return {.group = group,
          .name = "--megatron",
          .argument = "EXCHANGE",
          .help =
              "an interleaved order with the transfers and waits of Megatron-LM's loop: "
              "overlap, its default; warmup-flush and batched, by its flags; even-odd, by "
              "core's configuration",
          .choices = planner::megatron_exchange_names(),
          .checked = true};
}

std::optional<planner::MegatronExchange> asked_exchange(const Arguments& arguments) {
  const auto name = arguments.text("--megatron");
  if (!name) return std::nullopt;
  return planner::parse_megatron_exchange(*name);
}

Order megatron_list(const Order& order, planner::MegatronExchange exchange) {
  try {
    return planner::megatron_interleaved_list(order, exchange);
  } catch (const InputError& refusal) {
    throw InputError("--megatron " + std::string(to_string(exchange)) + ": " + refusal.what());
  }
}

std::vector<sim::NamedPolicy> exchange_as_asked(const Arguments& arguments, Subject& subject) {
  const auto exchange = asked_exchange(arguments);
  if (!exchange) return {};
  const int ranks =
      subject.plan() != nullptr ? subject.plan()->ranks() : subject.order.rank_count();
  auto policies = planner::megatron_interleaved_policies(*exchange, ranks);
  if (names_policy(arguments)) {
    const CommPolicy named = policy_from(arguments, policies.front().policy);
    policies = {{std::string(name_of(named)), named}};
  }
  subject.order = list_of(subject, *exchange);
  subject.program = lower(subject.order, policies.front().policy, subject.lowering);
  subject.title += ", Megatron-LM's exchange: " + std::string(to_string(*exchange));
  return policies;
}

}  // namespace pipewright::tools
