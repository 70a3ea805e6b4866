// The entries that the registry lists, one function for each schedule of this folder and its
// families. A new schedule adds its line here and in planner/schedules/registry.cpp
// (docs/adding-a-schedule.md).
#pragma once

#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

Schedule naive_schedule();
Schedule gpipe_schedule();
Schedule one_f_one_b_schedule();
Schedule eager_1f1b_schedule();
Schedule looped_bfs_schedule();
Schedule interleaved_schedule();
Schedule grouped_interleaved_schedule();
Schedule zb_h1_schedule();
Schedule zb_h2_schedule();
Schedule zb_1p_schedule();
Schedule zb_2p_schedule();
Schedule interleaved_zb_schedule();
Schedule one_f_one_b_v_schedule();
Schedule v_half_schedule();
Schedule v_min_schedule();
Schedule zbv_schedule();
Schedule zbv_auto_schedule();
Schedule zbvpp_schedule();
Schedule dualpipev_schedule();
Schedule dualpipe_schedule();
Schedule chimera_schedule();
Schedule hanayo_schedule();
Schedule paddle_vpp_schedule();
Schedule paddle_zbh1_schedule();
Schedule pipedream_schedule();
Schedule pipedream_2bw_schedule();
Schedule one_f_one_b_rr_schedule();
Schedule auto_schedule();

}  // namespace pipewright::planner
