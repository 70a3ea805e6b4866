#include "exec/devices/cpu/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace {

/// Sums of squares, for one array or for all.
struct Squares {
  double difference = 0, reference = 0;

  double ratio() const {
    if (difference == 0) return 0;  // also where both are 0
    return std::sqrt(difference) / std::sqrt(reference);
  }
};

/// NaN counts as worse than every number.
bool is_worse(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

double root_mean_square(double squares, std::size_t count) {
  return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
}

class Comparison {
 public:
  /// An array of the reference, before any is compared.
  void measure(std::span<const float> reference) {
    for (const float one : reference)
      reference_squares_ += static_cast<double>(one) * static_cast<double>(one);
    elements_ += reference.size();
  }

  void add(const std::string& name, std::span<const float> run, std::span<const float> reference) {
    PIPEWRIGHT_ASSERT(run.size() == reference.size(), "\"" + name + "\" differs in size");
    Squares own;
    const double least = root_mean_square(reference_squares_, elements_);
    for (std::size_t i = 0; i < run.size(); ++i) {
      const double apart = static_cast<double>(run[i]) - static_cast<double>(reference[i]);
      own.difference += apart * apart;
      own.reference += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
      const double scale = std::max(std::abs(static_cast<double>(reference[i])), least);
      result_.max_ulp = std::max(result_.max_ulp, ulps_apart(run[i], reference[i], scale));
    }
    if (std::memcmp(run.data(), reference.data(), run.size_bytes()) != 0) result_.bitwise = false;
    if (is_worse(own.ratio(), result_.worst_norm_rel)) {
      result_.worst = name;
      result_.worst_norm_rel = own.ratio();
    }
    all_.difference += own.difference;
    all_.reference += own.reference;
  }

  Difference result() const {
    Difference result = result_;
    result.norm_rel = all_.ratio();
    return result;
  }

 private:
  Squares all_;
  double reference_squares_ = 0;
  std::size_t elements_ = 0;
  Difference result_;
};

}  // namespace

std::int64_t ulps_apart(float a, float b, double scale) {
  constexpr int kFractionBits = 23, kLeastExponent = -126;
  constexpr double kMost = 0x1p62;
  const double apart = std::abs(static_cast<double>(a) - static_cast<double>(b));
  if (apart == 0) return 0;
  const int exponent = scale > 0 ? std::max(std::ilogb(scale), kLeastExponent) : kLeastExponent;
  const double ulps = std::ceil(std::scalbn(apart, kFractionBits - exponent));
  return ulps < kMost ? static_cast<std::int64_t>(ulps) : std::numeric_limits<std::int64_t>::max();
}

VerifyReport verify(std::span<const ParameterView> run, std::span<const ParameterView> reference) {
  std::map<std::string, const ParameterView*> by_name;
  for (const ParameterView& view : reference) by_name.emplace(view.name, &view);
  std::set<std::string_view> seen;
  Comparison gradients, parameters;
  for (const ParameterView& view : reference) {
    gradients.measure(view.gradient);
    parameters.measure(view.value);
  }
  for (const ParameterView& view : run) {
    const auto expected = by_name.find(view.name);
    PIPEWRIGHT_ASSERT(expected != by_name.end(), "the reference has no \"" + view.name + "\"");
    gradients.add(view.name, view.gradient, expected->second->gradient);
    parameters.add(view.name, view.value, expected->second->value);
    PIPEWRIGHT_ASSERT(view.is_copy || seen.insert(view.name).second,
                      "two stages hold \"" + view.name + "\"");
  }
  PIPEWRIGHT_ASSERT(seen.size() == reference.size(),
                    "the run and its reference are not of one model");
  return {gradients.result(), parameters.result(), static_cast<int>(reference.size())};
}

}  // namespace pipewright::exec
