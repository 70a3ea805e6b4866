// What a replica holds of a stage's parameters where replicas divide gradients, or weights too,
// among them (ZeRO stages 2 and 3, docs/semantics.md §3.2): its own part for good, and whole arrays
// while they are needed. Parameter::value and gradient are the whole ones while there are some,
// else the part; so are exact numerics' sums. Borrows the parameters and the sums; one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/order/sharding.hpp"
#include "exec/base/fixed_point.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/gradient_part.hpp"

namespace pipewright::exec::cpu {

class OwnedArrays {
 public:
  /// All arrays are whole, and become their parts: of weights the elements in the ranges, by
  /// parameter. Both must outlive it. `sums`: by parameter too, or empty.
  OwnedArrays(const std::vector<Parameter*>& parameters, std::vector<FixedPointSums>& sums,
              const std::vector<ElementRange>& ranges, const Sharding& sharding);

  bool has_whole_gradients() const { return !own_gradients_.empty(); }
  /// 0 everywhere; nothing where they are.
  void make_whole_gradients();
  /// The sums where there are some, else the gradients; no arrays where none are whole.
  GradientPart take_whole_gradients();

  /// With the own part in its place; nothing where they are.
  void make_whole_weights();
  void drop_whole_weights();

  std::size_t size_of(std::size_t place) const { return sizes_[place]; }
  /// Of the parts that lie beside whole arrays now.
  std::int64_t bytes() const;

 private:
  const std::vector<Parameter*>& parameters_;
  std::vector<FixedPointSums>& sums_;
  std::vector<ElementRange> own_;   // statistics: all
  std::vector<std::size_t> sizes_;  // of the whole arrays
  // The parts, by parameter, while whole arrays stand in their place.
  std::vector<AlignedFloats> own_gradients_, own_weights_;
  std::vector<FixedPointSums> own_sums_;
};

/// Of sums that begin with element `first` of an array, those in the range.
FixedPointSums slice_of(const FixedPointSums& sums, std::size_t first, const ElementRange& range);

}  // namespace pipewright::exec::cpu
