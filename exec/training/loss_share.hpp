// A micro-batch's part of the step's mean loss.
#pragma once

#include <cmath>
#include <cstddef>

namespace pipewright::exec {

/// A multiple of 2^-32 where it is below 2^19, so that the parts of several stages add up to the
/// same number in every order.
inline double loss_share_of(double loss, std::size_t micro_batches) {
  const double share = loss / static_cast<double>(micro_batches);
  // Adding this leaves no bits below 2^-32. What is too large for it is left as it is.
  constexpr double kRound = 0x1.8p20;
  return std::abs(share) < 0x1p19 ? (share + kRound) - kRound : share;
}

}  // namespace pipewright::exec
