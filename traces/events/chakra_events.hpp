// Chakra's traces of the ranks of a pipeline as slices named after its actions.
#pragma once

#include <vector>

#include "traces/events/chakra_actions.hpp"
#include "traces/events/raw_trace.hpp"

namespace pipewright::traces {

/// One for each rank, in the order of `traces`. An action lasts from the first start to the last
/// end of its computations, on the device where it has any there. Messages are slices too. Where
/// the files have no times, metadata "times" says what these are. Throws
/// InputError as time_nodes() and recovered_actions(), and where no computation has a duration.
std::vector<RawTrace> chakra_events(const std::vector<ChakraTrace>& traces,
                                    CellOfName cell_of_name);

}  // namespace pipewright::traces
