// --megatron: an interleaved order with the transfers of Megatron-LM's loop
// (planner/export/megatron_interleaved.hpp).
#pragma once

#include <optional>
#include <vector>

#include "planner/export/megatron_interleaved.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// In the group "Communication", except where a command only writes the list.
Flag megatron_flag(std::string_view group = "Communication");
std::optional<planner::MegatronExchange> asked_exchange(const Arguments& arguments);
/// planner::megatron_interleaved_list(), whose refusals name the flag.
Order megatron_list(const Order& order, planner::MegatronExchange exchange);
/// Where the flag is given, the subject's order becomes that list (throws InputError where the loop
/// does not run it), its Program the list's under the first of the policies returned: those of the
/// list, or the one that policy flags make of the first. Else nothing is done, and none returned.
std::vector<sim::NamedPolicy> exchange_as_asked(const Arguments& arguments, Subject& subject);

}  // namespace pipewright::tools
