#include "tools/output/fit_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/base/units.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

std::string factor_text(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", factor);
  return text;
}

Nanoseconds scaled(Nanoseconds time, double factor) {
  return Nanoseconds(
      std::max<std::int64_t>(0, std::llround(static_cast<double>(time.value) * factor)));
}

void scale(Distribution& distribution, double factor) {
  distribution.mean = scaled(distribution.mean, factor);
  for (Nanoseconds& quantile : distribution.quantiles) quantile = scaled(quantile, factor);
}

/// Of F, I, W, OPT, and of what B saves.
struct Factors {
  double f = 1, i = 1, w = 1, opt = 1, saved = 1;
};

bool occurs(const traces::Fit& fit, const std::string& kind) {
  return std::any_of(fit.scales.begin(), fit.scales.end(),
                     [&](const traces::KindScale& one) { return one.kind == kind; });
}

Factors factors_of(const traces::Fit& fit) {
  const auto of = [&](const char* kind) {
    return std::max(0.0, fit.factor_of(occurs(fit, kind) ? kind : "B"));
  };
  Factors factors{std::max(0.0, fit.factor_of("F")), of("I"), of("W"),
                  std::max(0.0, fit.factor_of("OPT"))};
  factors.saved =
      occurs(fit, "B") ? std::max(0.0, fit.factor_of("B")) : std::midpoint(factors.i, factors.w);
  return factors;
}

}  // namespace

std::string fit_text(const traces::Fit& fit, const Terminal& terminal) {
  std::string text = "what the prediction misses, fitted over " + std::to_string(fit.actions) +
                     " actions (" + std::to_string(fit.left_out) + " outliers left out):";
  for (const traces::KindScale& one : fit.scales)
    text += " " + one.kind + " x " + factor_text(one.scale) + ",";
  text += fit.overhead_ns ? " an action " + std::string(*fit.overhead_ns < 0 ? "-" : "+") +
                                time_text(std::abs(*fit.overhead_ns))
                          : std::string(" no overhead to be told apart");
  text += fit.contention ? ", each other rank that computes meanwhile " +
                               signed_percent_text(*fit.contention) + " (" +
                               factor_text(fit.mean_others) + " on average)"
                         : std::string(", no contention to be told apart");
  text += "; the mean error of an action goes from " +
          percent_text(fit.error_percent_before / 100) + " to " +
          percent_text(fit.error_percent_after / 100);
  return wrapped(text, terminal.width, 0);
}

Json fit_fields(const traces::Fit& fit) {
  Json scales = Json::array();
  for (const traces::KindScale& one : fit.scales)
    scales.push_back({{"kind", one.kind}, {"scale", one.scale}});
  return {{"scales", std::move(scales)},
          {"overhead_ns", fit.overhead_ns ? Json(*fit.overhead_ns) : Json(nullptr)},
          {"contention", fit.contention ? Json(*fit.contention) : Json(nullptr)},
          {"mean_others", fit.mean_others},
          {"actions", fit.actions},
          {"left_out", fit.left_out},
          {"error_percent_before", fit.error_percent_before},
          {"error_percent_after", fit.error_percent_after}};
}

Profile fitted_profile(Profile profile, const traces::Fit& fit) {
  const Factors factors = factors_of(fit);
  for (ProfileSize& size : profile.sizes) {
    for (LayerTimes& layer : size.layers) {
      layer = {
          scaled(layer.f, factors.f), scaled(layer.i, factors.i), scaled(layer.w, factors.w),
          scaled(layer.opt, factors.opt),
          Nanoseconds(std::llround(static_cast<double>(layer.saved_by_b.value) * factors.saved))};
    }
    size.loss.f = scaled(size.loss.f, factors.f);
    size.loss.i = scaled(size.loss.i, factors.i);
    size.f_ns_per_message_byte *= factors.f;
    size.i_ns_per_message_byte *= factors.i;
    for (LayerSpread& spread : size.spreads) {
      scale(spread.f, factors.f);
      scale(spread.i, factors.i);
      scale(spread.w, factors.w);
      scale(spread.opt, factors.opt);
      scale(spread.b, factors.saved);
    }
  }
  profile.action_overhead =
      std::max(Nanoseconds(0),
               profile.action_overhead + Nanoseconds(std::llround(fit.overhead_ns.value_or(0))));
  return profile;
}

}  // namespace pipewright::tools
