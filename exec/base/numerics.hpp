// How sums are taken in training. Fast: matrix products by OpenBLAS, gradients added in the order
// in which they come. Exact: products by one chain of fused multiply-adds in a fixed order
// (exec/devices/cpu/kernels/canonical_gemm.hpp), gradients added as integers
// (exec/base/fixed_point.hpp), so that every synchronous schedule, partition and
// number of replicas gives the bits of the serial run, on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace pipewright::exec {

enum class Numerics : std::uint8_t { Fast, Exact };

constexpr std::string_view to_string(Numerics numerics) {
  return numerics == Numerics::Exact ? "exact" : "fast";
}

}  // namespace pipewright::exec
