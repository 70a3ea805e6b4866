// One function a sub-command: its table. The files are named after them.
#pragma once

#include "tools/cli/command.hpp"

namespace pipewright::tools {

Command analyze_command();
Command balance_command();  // in tools/commands/balance
Command report_command();
Command check_command();
Command checkpoint_command();  // in tools/commands/checkpoint
Command collectives_command();
Command compare_command();
Command completions_command();
Command demo_command();
Command doctor_command();
Command estimate_command();
Command explain_command();
Command export_command();
Command partition_command();
Command plan_command();
Command profile_command();
Command run_command();
Command schedules_command();
Command simulate_command();
Command spmd_command();
Command spmd_capture_command();  // a child of spmd, as the next three, in tools/commands/spmd
Command spmd_complete_command();
Command spmd_place_command();
Command spmd_run_command();
Command tune_command();

}  // namespace pipewright::tools
