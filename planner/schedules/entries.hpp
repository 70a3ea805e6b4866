// The entries that the registry lists, one function for each file of this folder. A new schedule
// adds its line here and in registry.cpp (docs/adding-a-schedule.md).
#pragma once

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

Schedule naive_schedule();
Schedule gpipe_schedule();
Schedule one_f_one_b_schedule();
Schedule interleaved_schedule();
Schedule zb_h1_schedule();
Schedule zb_1p_schedule();
Schedule zb_2p_schedule();
Schedule zbv_auto_schedule();
Schedule zbvpp_schedule();
Schedule paddle_vpp_schedule();

}  // namespace pipewright::planner
