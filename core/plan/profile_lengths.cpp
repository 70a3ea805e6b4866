#include "core/plan/profile_lengths.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>

#include "core/base/error.hpp"

namespace pipewright {
namespace {

double passes_ns(const ProfileSize& size) {
  Nanoseconds sum;
  for (const LayerTimes& layer : size.layers) sum = sum + layer.f + layer.b();
  return static_cast<double>(sum.value);
}

/// Against the same micro-batch sizes of the usual length.
double scale_of(const ProfileLength& one, const Profile& profile) {
  double ns = 0, usual_ns = 0;
  for (const ProfileSize& size : one.sizes) {
    const auto usual =
        std::ranges::find(profile.sizes, size.micro_batch_size, &ProfileSize::micro_batch_size);
    PIPEWRIGHT_ASSERT(usual != profile.sizes.end(), "a length of a size that nobody measured");
    ns += passes_ns(size);
    usual_ns += passes_ns(*usual);
  }
  if (usual_ns <= 0) throw InputError("the profile's layers take no time at its usual length");
  return ns / usual_ns;
}

}  // namespace

double length_scale(const Profile& profile, int length) {
  if (profile.lengths.empty())
    throw InputError(
        "the profile has samples of one length alone; measure it with batches of several lengths");
  std::map<int, double> scales = {{profile.length, 1}};
  for (const ProfileLength& one : profile.lengths) scales[one.length] = scale_of(one, profile);
  const auto above = scales.lower_bound(length);
  if (above == scales.end() || (above == scales.begin() && above->first != length))
    throw InputError("expected a length that the profile reaches, " +
                     std::to_string(scales.begin()->first) + " to " +
                     std::to_string(scales.rbegin()->first) + ", found " + std::to_string(length));
  if (above->first == length) return above->second;
  const auto below = std::prev(above);
  const double part = static_cast<double>(length - below->first) / (above->first - below->first);
  return std::lerp(below->second, above->second, part);
}

}  // namespace pipewright
