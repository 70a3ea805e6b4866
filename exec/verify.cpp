#include "exec/verify.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "core/error.hpp"

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

class Comparison {
 public:
  void add(const std::string& name, std::span<const float> run, std::span<const float> reference) {
    PIPEWRIGHT_ASSERT(run.size() == reference.size(), "\"" + name + "\" differs in size");
    Squares own;
    for (std::size_t i = 0; i < run.size(); ++i) {
      const double apart = static_cast<double>(run[i]) - static_cast<double>(reference[i]);
      own.difference += apart * apart;
      own.reference += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
      result_.max_ulp = std::max(result_.max_ulp, ulp_distance(run[i], reference[i]));
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
  Difference result_;
};

/// The bits as integers that are ordered as the numbers are.
std::int64_t ordered(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits >= 0 ? bits : std::int64_t{std::numeric_limits<std::int32_t>::min()} - bits;
}

}  // namespace

std::int64_t ulp_distance(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) {
    return std::bit_cast<std::int32_t>(a) == std::bit_cast<std::int32_t>(b)
               ? 0
               : std::numeric_limits<std::int64_t>::max();
  }
  return std::abs(ordered(a) - ordered(b));
}

VerifyReport verify(std::span<const cpu::ParameterView> run,
                    std::span<const cpu::ParameterView> reference) {
  std::map<std::string, const cpu::ParameterView*> by_name;
  for (const cpu::ParameterView& view : reference) by_name.emplace(view.name, &view);
  std::set<std::string_view> seen;
  Comparison gradients, parameters;
  for (const cpu::ParameterView& view : run) {
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

std::vector<cpu::ParameterView> parameters_of(std::span<const cpu::Stage* const> stages) {
  std::vector<cpu::ParameterView> all;
  for (const cpu::Stage* stage : stages) {
    std::vector<cpu::ParameterView> own = stage->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace pipewright::exec
