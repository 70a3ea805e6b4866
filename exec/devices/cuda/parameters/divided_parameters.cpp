// The parameters of a stage on a GPU whose replicas divide gradients, or weights too (ZeRO 2 and
// 3): their own parts for good, and whole arrays while they are needed, in memory of computations,
// so that it is used again as soon as the computing stream is behind the last work with them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cuda/parameters.hpp"

namespace pipewright::exec::cuda {

Buffer Parameters::whole_array(std::size_t number_bytes) const {
  const std::size_t most = std::max(room_, numbers_of_blocks_);
  return queue_.memory().take(room_ * number_bytes, most * number_bytes);
}

// --- Gradients ---

Parameters::Held Parameters::held_gradient(const Placed& p) const {
  if (!divides_gradients() || has_whole_gradients()) return {{0, p.size}, p.offset};
  return kept_of(p);
}

/// A divided one, of which there is the sum alone, nobody adds to; but layers read the sums of
/// statistics.
void Parameters::point_at_gradients() {
  for (const Placed& p : all_) {
    if (!divides_gradients() || has_whole_gradients())
      p.host->device_gradient = gradients_.floats() + p.offset;
    else
      p.host->device_gradient =
          p.host->is_statistic ? gradients_.floats() + kept_of(p).at : nullptr;
  }
}

/// 0 in the gaps too, of which sums are taken with the rest.
void Parameters::make_whole_gradients() {
  if (has_whole_gradients()) return;
  own_gradients_.values = std::exchange(gradients_, whole_array(sizeof(float)));
  if (is_exact()) {
    own_gradients_.high = std::exchange(high_, whole_array(sizeof(std::int64_t)));
    own_gradients_.low = std::exchange(low_, whole_array(sizeof(std::int64_t)));
  }
  clear_gradient_arrays();
  point_at_gradients();
}

void Parameters::drop_whole_gradients() {
  gradients_ = std::exchange(own_gradients_.values, Buffer());
  high_ = std::exchange(own_gradients_.high, Buffer());
  low_ = std::exchange(own_gradients_.low, Buffer());
  point_at_gradients();
}

GradientPart Parameters::hand_over_whole_gradients() {
  if (!has_whole_gradients()) return {};
  std::vector<std::size_t> places(all_.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  GradientPart whole = part(places);
  drop_whole_gradients();
  return whole;
}

Buffer Parameters::take_whole_gradients() {
  PIPEWRIGHT_ASSERT(has_whole_gradients(), "no whole gradients are there to be taken");
  Buffer whole = gradients_;
  drop_whole_gradients();
  return whole;
}

/// Sums are float32 in any precision.
void Parameters::add_own_part(const Buffer& whole) {
  for (const Section& one : sections_) {
    if (one.own.size() > 0)
      queue_.run(queue_.cuda().fast.add_to, one.own.size(), whole.floats() + one.own.begin,
                 own_gradients(one));
  }
}

void Parameters::add(std::size_t place, const Summands& summands) {
  is_exact() ? put_sums(place, summands, true) : put(place, summands, true);
}

// --- Weights ---

void Parameters::make_whole_weights() {
  if (whole_weights_) return;
  const std::size_t bytes = queue_.number_bytes();
  whole_weights_ = whole_array(bytes);
  const Buffer& own = read_ ? read_ : values_;
  for_sections_of_weights([&](const Section& one) {
    if (one.own.size() > 0)
      queue_.copy(static_cast<std::byte*>(whole_weights_.at()) + one.own.begin * bytes,
                  static_cast<const std::byte*>(own.at()) + one.kept * bytes,
                  one.own.size() * bytes);
  });
  point_at_weights();
}

void Parameters::drop_whole_weights() {
  whole_weights_.reset();
  point_at_weights();
}

}  // namespace pipewright::exec::cuda
