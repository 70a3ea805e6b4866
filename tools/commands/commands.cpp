#include "tools/commands/commands.hpp"

namespace pipewright::tools {

std::vector<Command> all_commands() {
  return {demo_command(),       schedules_command(), simulate_command(),    compare_command(),
          check_command(),      explain_command(),   tune_command(),        plan_command(),
          balance_command(),    estimate_command(),  collectives_command(), partition_command(),
          spmd_command(),       export_command(),    run_command(),         checkpoint_command(),
          profile_command(),    analyze_command(),   report_command(),      doctor_command(),
          completions_command()};
}

std::vector<Flag> common_flags() {
  return {
      {.group = "Output of every command",
       .name = "--json",
       .help = "print one JSON document (schema pipewright.result/1) instead of text"},
      {.group = "Output of every command",
       .name = "--color",
       .argument = "WHEN",
       .help = "colour; auto: on a terminal, unless NO_COLOR is set",
       .choices = {"auto", "always", "never"},
       .checked = true},
      {.group = "Output of every command",
       .name = "--width",
       .argument = "COLUMNS",
       .help = "of the text, 40 to 1000, instead of the terminal's; 80 in a pipe"},
      {.group = "Output of every command",
       .name = "--quiet",
       .help = "no notes and no progress on stderr",
       .short_name = 'q'},
      {.group = "Output of every command",
       .name = "--help",
       .help = "print the page of this command",
       .short_name = 'h'},
  };
}

}  // namespace pipewright::tools
