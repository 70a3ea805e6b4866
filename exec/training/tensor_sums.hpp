// The sums that ranks take which divide a stage's layers (exec/layers/tensor_group.hpp), over the
// group of those ranks.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "exec/collectives/group.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec {

/// The array, or of one that is scattered this member's rows, becomes the sum, in the numerics of
/// `members`; returns when it is there. All members call it for the same sum. Throws RunError as
/// the group does.
void bring_together(SumOfMembers& sum, const AxisGroup& members, collectives::Group& group);
/// All rows are there when it returns. Otherwise as above.
void bring_together(RowsOfMembers& rows, collectives::Group& group);
void bring_together(RingOfMembers& ring, collectives::Group& group);
/// What each member sends arrives at the next one, as many bytes, all at once.
void pass_on(std::span<const std::byte> sent, std::span<std::byte> arrived,
             collectives::Group& group);
/// Of what goes on beside computations, which a member may come to long before the others: where
/// the group can (exec/collectives/posting.hpp), it is sent when the call is issued, so that nobody
/// waits for anybody when it has ended. Elsewhere members meet then. `name`: of the call, among
/// those that are under way at once.
void send_round(const std::string& name, const RingOfMembers& ring, collectives::Group& group);
void take_round(const std::string& name, RingOfMembers& ring, collectives::Group& group);

}  // namespace pipewright::exec
