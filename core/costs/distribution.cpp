#include "core/costs/distribution.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/json_fields.hpp"

namespace pipewright {
namespace {

constexpr std::int64_t kMostSamples = 1'000'000'000;

/// `share` of the way through ascending numbers that lie equally far apart.
double between(const std::vector<std::int64_t>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const auto low = static_cast<double>(sorted[below]), high = static_cast<double>(sorted[above]);
  return low + (place - static_cast<double>(below)) * (high - low);
}

}  // namespace

double Distribution::at(double share) const {
  std::size_t i = 1;
  while (i + 1 < kShares.size() && share > kShares[i]) ++i;
  const double low = ns_at(i - 1), high = ns_at(i);
  const double part =
      std::clamp((share - kShares[i - 1]) / (kShares[i] - kShares[i - 1]), 0.0, 1.0);
  const bool is_last = i + 1 == kShares.size();
  return low + (is_last ? std::pow(part, steepness_of_tail()) : part) * (high - low);
}

double Distribution::steepness_of_tail() const {
  constexpr std::size_t kLast = kShares.size() - 1;
  const double low = ns_at(kLast - 1), width = ns_at(kLast) - low;
  const double share = kShares[kLast] - kShares[kLast - 1];
  double others = 0;
  for (std::size_t i = 1; i < kLast; ++i)
    others += (kShares[i] - kShares[i - 1]) * (ns_at(i - 1) + ns_at(i)) / 2;
  // The mean of part^k is 1 / (k + 1).
  constexpr double kLeast = 1e-3;
  const double of_tail = (static_cast<double>(mean.value) - others) / share;
  return width > 0 ? 1 / std::clamp((of_tail - low) / width, kLeast, 1 - kLeast) - 1 : 1;
}

Nanoseconds Distribution::middle_mean() const {
  double area = 0;
  for (std::size_t i = 1; i + 2 < kShares.size(); ++i) {
    area += (kShares[i + 1] - kShares[i]) *
            static_cast<double>(quantiles[i].value + quantiles[i + 1].value) / 2;
  }
  return Nanoseconds(std::llround(area / (kShares[5] - kShares[1])));
}

Distribution distribution_of(std::vector<std::int64_t> samples_ns) {
  Distribution result;
  if (samples_ns.empty()) return result;
  std::sort(samples_ns.begin(), samples_ns.end());
  result.count = static_cast<std::int64_t>(samples_ns.size());
  const double sum = std::accumulate(samples_ns.begin(), samples_ns.end(), 0.0);
  result.mean = Nanoseconds(std::llround(sum / static_cast<double>(samples_ns.size())));
  for (std::size_t i = 0; i < result.quantiles.size(); ++i) {
    result.quantiles[i] = Nanoseconds(std::llround(between(samples_ns, Distribution::kShares[i])));
  }
  return result;
}

Distribution read_distribution(const JsonCursor& value) {
  value.only({"count", "mean_ns", "quantiles_ns"});
  Distribution result;
  result.count = value.at("count").integer(1, kMostSamples);
  result.mean = read_duration(value.at("mean_ns"));
  const JsonCursor quantiles = value.at("quantiles_ns");
  const std::vector<JsonCursor> elements = quantiles.elements();
  if (elements.size() != result.quantiles.size()) quantiles.fail("7 numbers");
  for (std::size_t i = 0; i < elements.size(); ++i) {
    result.quantiles[i] = read_duration(elements[i]);
    if (i > 0 && result.quantiles[i] < result.quantiles[i - 1]) {
      elements[i].fail("at least the one before it, because quantiles ascend");
    }
  }
  return result;
}

Json to_json(const Distribution& distribution) {
  Json quantiles = Json::array();
  for (const Nanoseconds quantile : distribution.quantiles) quantiles.push_back(quantile.value);
  return {{"count", distribution.count},
          {"mean_ns", distribution.mean.value},
          {"quantiles_ns", std::move(quantiles)}};
}

}  // namespace pipewright
