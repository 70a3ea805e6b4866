// Groups of processes anywhere, over the wire of their job. Large arrays go round in a ring: each
// process hears its predecessor and tells its successor, so that every link between two hosts
// carries an array about twice, however many processes lie on either side. Small ones go straight
// to whoever needs them.
//
// The sum of floats: share j of an array above kRingBytes is added in the order j+1, j+2, ... n-1,
// 0, ... j, that of the ring; everything else in ascending order. Sums of floats in exact numerics
// never go round: on their way they would be four times as long.
#pragma once

#include <memory>
#include <span>

#include "exec/collectives/group.hpp"
#include "exec/collectives/process/mail.hpp"

namespace pipewright::exec::collectives {

inline constexpr std::size_t kRingBytes = std::size_t{16} << 10U;

/// The group of these processes, by member; null where this one is not among them. Every process of
/// the job calls it, in one order. The mail's link has to outlive it.
std::unique_ptr<Group> wire_group(std::shared_ptr<Mail> mail, std::span<const int> processes,
                                  Look look = {});

}  // namespace pipewright::exec::collectives
