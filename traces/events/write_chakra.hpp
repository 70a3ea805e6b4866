// A pipeline as Chakra's execution traces, for ASTRA-sim to simulate.
#pragma once

#include <string>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::traces {

/// The bytes of each rank's file. A computation is a COMP_NODE named after its action, lasts as in
/// the timeline (rounded to microseconds, as the format has them) and needs the one before it on
/// its rank and the messages that it takes; a message is issued behind what it is made by, and
/// awaited from the end of the computation before the one that takes it, because ASTRA-sim has one
/// message of a rank under way at a time. Throws InputError for collectives, which replicas and
/// divided layers have. The timeline has ended.
std::vector<std::string> chakra_files(const Program& program, const Timeline& timeline,
                                      const CostTable& costs);

}  // namespace pipewright::traces
