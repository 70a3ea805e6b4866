// What one replica of a stage brings to the sum of its gradients (docs/semantics.md §3.2), and its
// flat form for transports that carry bytes. Plain data; pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "exec/base/buffer.hpp"
#include "exec/base/fixed_point.hpp"

namespace pipewright::exec {

/// Gradients by parameter and the micro-batches in them: as floats, or in exact numerics as sums.
/// Neither: nothing went in.
struct GradientPart {
  std::vector<AlignedFloats> gradients;
  int micro_batches = 0;
  std::vector<FixedPointSums> sums;

  bool operator==(const GradientPart&) const = default;
};

/// Counts and sizes as 64-bit words and then the arrays, in this machine's byte order.
std::vector<std::byte> to_bytes(const GradientPart& part);
/// Throws RunError if these are not the bytes of a part.
GradientPart gradient_part_of(std::span<const std::byte> bytes);

}  // namespace pipewright::exec
