// After how many micro-batches a schedule's order repeats itself.
#pragma once

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// With so many micro-batches more, each rank's list is the same list with one period more in its
/// middle, and what stands behind it is for later micro-batches; that holds for any number of
/// micro-batches that is large enough. It follows from the rules, which are loops over
/// micro-batches whose body looks at nothing but the distance from the first and from the last one;
/// a test tries it. 0: the schedule has no such rule, or none is known; with these parameters or
/// sizes.
int order_period(const Schedule& schedule, const ScheduleRequest& request);

}  // namespace pipewright::planner
