// Sums and maxima of a row in sixteen interleaved parts. A plain float sum must be taken one after
// another; this order is as fixed as that one, and lets the compiler use vector instructions
// without being told that it may reorder.
#pragma once

#include <array>

namespace pipewright::exec::cpu {

inline constexpr int kLanes = 16;

/// Combines term(0) … term(n - 1): term i goes to part i % 16, and the parts are then combined in
/// halves. `combine` is + or max; `start` is its neutral element.
template <class Term, class Combine>
inline float reduce(int n, float start, Combine combine, Term term) {
  std::array<float, kLanes> lanes;
  lanes.fill(start);
  const int whole = n - n % kLanes;
  for (int i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      lanes[static_cast<unsigned>(l)] = combine(lanes[static_cast<unsigned>(l)], term(i + l));
    }
  }
  for (int i = whole; i < n; ++i) {
    float& lane = lanes[static_cast<unsigned>(i - whole)];
    lane = combine(lane, term(i));
  }
  for (unsigned half = kLanes / 2; half > 0; half /= 2) {
    for (unsigned l = 0; l < half; ++l) lanes[l] = combine(lanes[l], lanes[l + half]);
  }
  return lanes[0];
}

template <class Term>
inline float sum(int n, Term term) {
  return reduce(
      n, 0.0F, [](float a, float b) { return a + b; }, term);
}

/// Of n >= 1 elements. A NaN among them may be passed over; the exponentials that follow keep it.
inline float maximum(int n, const float* x) {
  return reduce(
      n, x[0], [](float a, float b) { return a < b ? b : a; }, [x](int i) { return x[i]; });
}

}  // namespace pipewright::exec::cpu
