// The exchanges of rows between ranks that hold different experts (exec/layers/expert_group.hpp),
// over the group of those ranks.
#pragma once

#include <cstddef>

#include "exec/collectives/group.hpp"
#include "exec/layers/expert_group.hpp"

namespace pipewright::exec {

/// Where members do not know yet what comes, the counts, and then make_room().
void bring_counts_together(ExchangeOfMembers& exchange, collectives::Group& group);
/// The rows, of numbers of so many bytes, to `in` from `out`. All counts are known.
void bring_rows_together(const ExchangeOfMembers& exchange, std::size_t number_bytes,
                         const std::byte* out, std::byte* in, collectives::Group& group);

/// Both, of floats on the host. Returns when the rows that come in are there. All members call it
/// for the same exchange. Throws RunError as the group does.
void bring_together(ExchangeOfMembers& exchange, collectives::Group& group);

}  // namespace pipewright::exec
