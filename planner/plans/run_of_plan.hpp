// What a run of a plan executes: its Program (program_of_plan()), or, where ranks divide layers
// among them, the one in which every device is a rank, with the parts that the model's layers have
// (docs/semantics.md §3.5). Thread-safe.
#pragma once

#include "core/order/order.hpp"
#include "core/plan/plan.hpp"
#include "core/program/program.hpp"
#include "exec/layers/divided/divided_parts.hpp"

namespace pipewright::planner {

/// Whether it is another one than program_of_plan()'s.
bool divides_layers(const Plan& plan);

/// Pipelines that have experts of their own. InputError where there are none, or not whole ones.
int whole_replicas(const Plan& plan);

/// Replicas that divide the experts, and ranks that divide sequences, are devices of one rank
/// there. InputError where expert_parallel does not divide the replicas. The plan's own parts, if
/// they are those of the model's layers in these numerics. Else theirs: exchanges between experts,
/// and along cp, take what the plan's numbers hold of them, so that the step stays the same; what
/// exact numerics exchange besides comes on top; of what else is sent inside a stage the plan's
/// numbers hold all, and it takes no time of its own.
/// Forward only: of the forwards alone (core/order/forward_order.hpp), without an update.
Order order_of_run(const Plan& plan, exec::Numerics numerics = exec::Numerics::Fast,
                   exec::RunMode mode = exec::RunMode::Train);
Program program_of_run(const Plan& plan, exec::Numerics numerics = exec::Numerics::Fast,
                       exec::RunMode mode = exec::RunMode::Train);
/// Of a run's ranks: routes between them are those of their pipeline ranks; on a cluster with
/// shared links each device has its own.
CostTable costs_of_run(const Plan& plan);

}  // namespace pipewright::planner
