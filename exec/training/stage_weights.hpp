// The seam between a stage and whoever keeps its parameters: weights, gradients, exact numerics'
// sums of gradients, what the optimizer keeps, older versions. A stage says what happens to them
// and when; where the arrays lie, and what computes on them, is the device's affair
// (exec/devices/cpu/parameters.hpp, exec/devices/cuda/parameters.hpp). What leaves it for other
// ranks, and comes from them, is host memory. A place is one in the stage's list of parameters.
//
// A call may only enqueue the work, but for those that bring something to the host or take it from
// there. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/order/sharding.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/gradient_norm.hpp"
#include "exec/training/gradient_part.hpp"
#include "exec/training/parameter_views.hpp"
#include "exec/training/shard.hpp"

namespace pipewright::exec {

/// Older versions of the weights (docs/semantics.md §3.1).
class KeptVersions {
 public:
  virtual ~KeptVersions() = default;

  /// Keeps a copy of the weights as they are now. Bug if the version is kept already.
  virtual void keep(int version) = 0;
  /// Lets a version go; nothing if it is not kept.
  virtual void drop(int version) = 0;
  /// Exchanges the weights with the kept ones; the same call again puts them back. Bug if the
  /// version is not kept.
  virtual void exchange(int version) = 0;
  virtual int kept() const = 0;
};

/// Arrays whose sum a gradient becomes, in the order given; of one kind, that of
/// StageWeights::part().
struct Summands {
  std::vector<const AlignedFloats*> gradients;
  std::vector<const FixedPointSums*> sums;
  ElementRange range;      // nobody reads the sum of other elements; it may be left out
  std::string_view whose;  // the arrays, in a clause of not_finite(): "the replicas' gradients"
};

/// Weights that replicas update a part each of (exec/training/shard.hpp).
class SharedOutWeights {
 public:
  virtual ~SharedOutWeights() = default;

  /// Which elements a replica's part has, by place.
  virtual std::vector<ElementRange> ranges_of(const StageParameters& parameters,
                                              const ShardPlace& place) const {
    return shard_of(parameters, place);
  }
  /// The optimizer begins anew, with state of these elements only, by place; of gradients and
  /// weights, as far as they are divided, no others are kept either.
  virtual void own(const std::vector<ElementRange>& ranges, const Sharding& sharding) = 0;

  // Where gradients are divided: micro-batches make whole ones, 0 at first, which all replicas hand
  // over; what comes back of them is added to the own part of the sum, the gradient otherwise.
  virtual bool has_whole_gradients() const = 0;
  /// Nothing where they are.
  virtual void make_whole_gradients() = 0;
  /// No arrays where there are none.
  virtual GradientPart hand_over_whole_gradients() = 0;
  virtual void add(std::size_t place, const Summands& summands) = 0;

  // Where weights are divided, likewise.
  /// Whole ones, with the own part in its place and no other yet; nothing where they are.
  virtual void make_whole_weights() = 0;
  /// The own part alone is left; nothing where it is alone.
  virtual void drop_whole_weights() = 0;

  /// By place the weights in the ranges, and after them, if asked for, the gradients, by place too.
  virtual GradientPart owned_part(std::span<const ElementRange> ranges,
                                  bool with_gradients) const = 0;
  /// Writes another replica's part back; not what is of experts, where it holds others. Throws
  /// RunError if it is not that of these ranges.
  virtual void take(std::span<const ElementRange> ranges, bool with_experts,
                    const GradientPart& part) = 0;
};

class StageWeights {
 public:
  static constexpr int kOfAnotherRank = -1;

  virtual ~StageWeights() = default;

  /// All gradients become 0.
  virtual void clear_gradients() = 0;
  /// Exact numerics: the micro-batch's parts of these parameters go into the sums and become 0.
  /// Nothing in other numerics. kOfAnotherRank: it is one that another rank computes.
  virtual void add_parts(std::span<const std::size_t> places, int micro_batch) = 0;
  /// Exact numerics: the gradients become the sums. Nothing in other numerics.
  virtual void settle() = 0;
  /// Every gradient times this; those of statistics only if asked for.
  virtual void scale(float factor, bool with_statistics) = 0;
  /// Of the settled gradients of weights that are no copies, or of their elements in the ranges, by
  /// place, if there are any; without meaning once not_finite() says something.
  virtual SquareSum squares(std::span<const ElementRange> ranges) = 0;
  /// A copy of the gradients at these places, or in exact numerics of their sums.
  virtual GradientPart part(std::span<const std::size_t> places) = 0;
  /// The gradient there, or in exact numerics its sum, becomes the sum of these.
  virtual void set(std::size_t place, const Summands& summands) = 0;
  /// The optimizer's update from the settled gradients; `step` counts from 0.
  virtual void update(int step) = 0;

  /// Which gradient, weight or number that the optimizer keeps is not finite, or was too large on
  /// the way, as a clause; empty if none is known to be.
  virtual std::string not_finite() const = 0;
  /// Of all that is kept now.
  virtual std::int64_t bytes() const = 0;

  /// Forward only from now on: gradients and the optimizer's state go. Bug where the device only
  /// trains.
  virtual void forget_training();
  /// Each parameter's weights and what the optimizer keeps of it, in a fixed order, to be read or
  /// to be filled. Where they lie elsewhere, the host has copies to read from fetch_state() on, and
  /// to fill from make_room_for_state() on, which store_state() puts there.
  virtual std::vector<StateView> state() = 0;
  virtual void fetch_state() {}
  virtual void make_room_for_state() {}
  virtual void store_state() {}
  /// Null where the device does not do these yet.
  virtual KeptVersions* versions() { return nullptr; }
  virtual SharedOutWeights* shared_out() { return nullptr; }
};

}  // namespace pipewright::exec
