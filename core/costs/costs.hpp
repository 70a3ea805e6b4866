// What an action and a transfer cost: the only thing besides a Program that a
// simulation needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "core/program/program.hpp"

namespace pipewright {

class ActionTimes;        // core/costs/action_times.hpp
struct CollectivePrices;  // core/costs/collective_model.hpp

/// Durations of one stage, one micro-batch.
struct StageCosts {
  Nanoseconds f, i, w;
  Nanoseconds b;    // I and W fused; where a file or flag leaves it out: i + w
  Nanoseconds opt;  // this stage's part of the update
  // Time of the collectives of the stage's replicas, added to that of moving
  // CostTable::parameter_bytes.
  Nanoseconds reduce, unshard;
};
/// Which of these an F, I, W or B takes.
Nanoseconds StageCosts::*time_of(ActionKind kind);

/// Live memory of one stage: the changes that its actions make (positive: bytes taken, negative:
/// given back), and what is always there.
struct StageMemory {
  Bytes f, i, w;   // change at the start of F (usually > 0), at the end of I and
                   // of W (usually < 0); B does both
  Bytes constant;  // weights, gradients, optimizer state
  /// The most that an action holds while it runs, beyond what was held before it. A value below the
  /// action's own change has no effect.
  Bytes in_f, in_i, in_w, in_b;
  Bytes version;  // an older version of the weights that is kept (core/program/version_changes.hpp)
  /// Where replicas divide gradients, or weights: the whole ones, beside the part in `constant`
  /// (core/timeline/whole_arrays.hpp).
  Bytes whole_gradients, whole_weights;
  /// Copies for other ranks that are kept from a REDUCE_GRAD, or UNSHARD, to the end of the step,
  /// where replicas do not divide gradients.
  Bytes copied_gradients, copied_weights;

  /// That of a computation; 0 for anything else.
  Bytes within(ActionKind kind) const;
};

/// A directed way between two ranks: latency, bandwidth, and the shared links
/// it goes over (indices into CostTable::links).
struct RouteCosts {
  Nanoseconds latency;
  double bytes_per_second = 0;  // 0: bytes cost nothing
  std::vector<std::uint32_t> links;
};

enum class Sharing : std::uint8_t { None, Serial, Fair, MaxMin };
struct Link {
  std::string name;
  double bytes_per_second = 0;
  Sharing sharing = Sharing::None;
};

struct CostTable {
  std::vector<StageCosts> stages;  // by stage
  /// Of single actions, in place of their stage's; nullptr: of none.
  std::shared_ptr<const ActionTimes> actions;
  std::vector<StageMemory> memory;      // by stage, or empty
  std::vector<Bytes> activation_bytes;  // message from stage s to s+1; empty or S-1 entries
  std::vector<Bytes> gradient_bytes;    // message from stage s+1 to s; empty or S-1 entries
  std::vector<Bytes> parameter_bytes;   // what REDUCE_GRAD and UNSHARD move, by stage; empty: 0
  Bytes tied_bytes;                     // what REDUCE_TIED moves
  /// Duration of an overlapped pair of forward of stage a and backward of stage
  /// b: fixed for all if set (> 0), else F(a) + B(b).
  Nanoseconds overlapped_pair;
  /// Of an F with a B, F's stage times the number of stages plus B's; 0: as above. Mostly empty.
  std::vector<Nanoseconds> pairs;
  RouteCosts every_route;  // for routes without an entry of their own
  /// Own entry of a directed rank edge, at source * ranks + destination; empty: every_route for
  /// all. Its links may be empty.
  std::vector<RouteCosts> route_of_edge;
  /// If not 0, so many ranks in a row are a replica: route_of_edge has the entries between these
  /// alone, which every replica has alike, and every_route counts from one replica to another.
  int ranks_of_replica = 0;
  /// So many consecutive ranks share the entry of one (docs/semantics.md §3.5).
  int ranks_of_entry = 1;
  std::vector<Link> links;
  /// What the ranks' collectives take; nullptr: a ring over their routes.
  std::shared_ptr<const CollectivePrices> collectives;
  std::string source = "assumed";  // where the numbers come from: "assumed", a profile's name

  /// Equal stages.
  static CostTable uniform(int stages, StageCosts each, Nanoseconds comm = Nanoseconds(0));

  /// The stage's entry; without a table an activation counts one unit from its F to its W.
  StageMemory memory_or_unit(int stage) const;
  bool has_shared_links() const;
  /// Whether links are shared max-min: then collectives go over them, too.
  bool shares_by_flow() const;
  const RouteCosts& route(RankId source_rank, RankId destination, int ranks) const;
  Bytes message_bytes(const Route& route) const;
  /// By route of the Program.
  std::vector<std::int64_t> message_bytes(const Program& program) const;
  /// Latency + bytes / bandwidth, rounded up (docs/semantics.md §5).
  Nanoseconds transfer_time(const Route& route, int ranks) const;
  /// What the stage says of a computation, whatever its micro-batch.
  Nanoseconds stage_time(ActionKind kind, StageId stage) const;
  /// Cost of a computation; of a pair if `partner` is set.
  Nanoseconds compute_time(const Action& action, const Action* partner = nullptr) const;
  /// Cost of OPT on a rank: the updates of its stages.
  Nanoseconds update_time(RankId rank, std::span<const StageId> stages) const;
  /// From the moment all members are ready to their end: by `collectives`, or the ring of its
  /// members by rank, over the largest latency and the least bandwidth on it (docs/semantics.md
  /// §5).
  Nanoseconds collective_time(const Collective& collective, int ranks) const;
  /// Bytes that its members have in common; nullopt: the table does not give them.
  std::optional<std::int64_t> collective_bytes(const Collective& collective) const;
  /// What moving so many bytes takes, what the table gives for the stage aside.
  Nanoseconds moving_time(const Collective& collective, std::int64_t moved, int ranks) const;
  /// Duration of any computation; 0 for transfer ends and members of collectives.
  Nanoseconds duration(const Program& program, InstructionId id) const;

 private:
  Nanoseconds pair_time(const Action& first, const Action& second) const;
  Nanoseconds ring_time(const Collective& collective, std::int64_t moved, int ranks) const;
};

}  // namespace pipewright
