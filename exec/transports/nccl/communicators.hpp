// Which communicators a Program needs from NCCL, who is in each, and the order in which they are
// made and connected. Plain data, a function of the Program and its costs: every process works it
// out for itself and all come to the same, so nothing but the unique ids has to be exchanged.
//
// A communicator of NCCL serves a rank's operations first in, first served, whatever stream they
// are on (NCCL 2.28 enqueue.cc: ncclLaunchPrepare makes each launch wait for the communicator's own
// stream). That is a queue of docs/semantics.md §2.1, so the policy's channel decides:
// one of two ranks for each directed edge (`edge`), or for each pair of ranks (`pair`), or one of
// all ranks (`rank`). A group (`grouped`) is one launch only within one communicator, so it takes
// one of all ranks too. Collectives have communicators of their own, one for each set of ranks, and
// those of groups one for each group.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/units.hpp"
#include "core/costs/costs.hpp"
#include "core/program/program.hpp"

namespace pipewright::exec::nccl {

inline constexpr std::uint32_t kNoCommunicator = std::numeric_limits<std::uint32_t>::max();

struct Communicator {
  enum class Use : std::uint8_t { Edge, Pair, All, Replicas, Group };
  Use use = Use::Edge;
  /// The member index of a rank is its place here. Edge: source, destination. Else ascending.
  std::vector<RankId> members;
  /// maxCTAs: the blocks that its kernel may occupy while it waits for the other side. Also the
  /// channels of a connection, each with a buffer of NCCL_BUFFSIZE.
  int most_ctas = 1;
  std::string group = {};  // its name

  int index_of(RankId rank) const;  // -1: no member
  bool operator==(const Communicator&) const = default;
};

/// What connects a communicator before the first step, as one group of every member: an element
/// over each edge, both ends of it; or one element summed by all.
struct WarmUp {
  std::uint32_t communicator = kNoCommunicator;
  std::vector<std::pair<int, int>> edges;  // member indices, from and to; empty: a collective
};

struct CommunicatorPlan {
  /// Every rank makes those that it is a member of in this order, one at a time, and then takes
  /// part in `warm_ups` in theirs. Neither can hang: the first communicator that is not made yet
  /// is the next one of each of its members.
  std::vector<Communicator> communicators;
  std::vector<WarmUp> warm_ups;
  std::vector<std::uint32_t> of_route;       // by Program::routes
  std::vector<std::uint32_t> of_collective;  // by Program::collectives
  /// By Program::collectives, of a REDUCE_GRAD some of whose members hold other experts than others
  /// do: by member that of those who hold the same, kNoCommunicator where it is alone with them.
  /// Empty: of another one.
  std::vector<std::vector<std::uint32_t>> of_experts;

  /// Those that the rank is a member of, ascending.
  std::vector<std::uint32_t> joined_by(RankId rank) const;
};

/// `costs` has the rates of the links, by which CTAs are chosen. Throws InputError with the first
/// of refusals_of() (exec/transports/nccl/policy_support.hpp). O(instructions).
CommunicatorPlan communicators_of(const Program& program, const CostTable& costs);

/// Of a REDUCE_GRAD: whether its stage has experts, and some members hold others than others do.
bool replicas_hold_other_experts(const Program& program, const Collective& collective);

/// CTAs that carry so many bytes a second in one direction of a link; 0: nobody knows the rate.
int ctas_for(double bytes_per_second);

/// "edge 0 to 1", "pair 0 1", "all ranks", "replicas 0 2", "group tp 0 1".
std::string name_of(const Communicator& communicator);

/// What a rank's communicators take from its device while all of them are at work.
struct DeviceShare {
  int communicators = 0;
  int ctas = 0;
  Bytes buffers;  // 4 MiB (NCCL_BUFFSIZE) for each channel of each connection
};
DeviceShare share_of(const CommunicatorPlan& plan, RankId rank);

}  // namespace pipewright::exec::nccl
