// What Paddle's strategy and its auto tuner have in common: names of schedules and what neither can
// say. Pure.
#pragma once

#include <string_view>

#include "planner/export/plan_facts.hpp"

namespace pipewright::planner {

/// pipeline.schedule_mode of a schedule of the registry; "" where Paddle has no such order.
std::string_view paddle_schedule_mode(std::string_view schedule);

/// Adds a refusal for the schedule, context and expert parallelism, and blocks that differ.
void refuse_for_paddle(const PlanFacts& facts, ExportedPlan& result);

/// A note where Paddle's own rule would cut the layers otherwise: as many for every stage, the
/// first ones one more (GET_PP_INFO_OF_LAYER).
void note_uneven_stages(const PlanFacts& facts, ExportedPlan& result);

}  // namespace pipewright::planner
