// The norm of all gradients of a model whose stages lie on several ranks, for clipping: each rank
// sums the squares of its own, and the sums travel. The sums are fixed-point numbers, so neither
// the partition nor the order of ranks shows in the norm. Plain data; one thread at a time.
#pragma once

#include <optional>
#include <span>

#include "exec/base/fixed_point.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec {

/// Squares below 1 in units of 2^-80, those from there on in units of 2^-40. Each is cut to its
/// unit by itself, so that the sum of the cut ones is exact.
struct SquareSum {
  FixedPoint small, large;

  /// False if one of the floats is not finite, or the norm is beyond 2^41, about 2e12.
  [[nodiscard]] bool add(std::span<const float> x);
  [[nodiscard]] bool add(const SquareSum& other);
  /// The root of the sum.
  double norm() const;

  bool operator==(const SquareSum&) const = default;
};

/// What gradients of this norm are multiplied by, so that it is at most `most`. (PyTorch's
/// clip_grad_norm_ adds 1e-6 to the norm before it divides; this does not.)
float clip_factor(double norm, double most);

/// A rank's sum on its way.
class NormMessage final : public Part {
 public:
  explicit NormMessage(const SquareSum& what) : squares(what) {}
  HostPayload pack() const override;

  SquareSum squares;
};

/// The sum of the ranks' sums; nullopt if that is too large. Throws RunError if a message is not a
/// NormMessage.
std::optional<SquareSum> total_of(std::span<const PartPtr> messages);

}  // namespace pipewright::exec
