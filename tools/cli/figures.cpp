#include "tools/cli/figures.hpp"

#include <cstdio>

namespace pipewright::tools {
namespace {
std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
}  // namespace

Json figures_fields(const Figures& figures) {
  Json ranks = Json::array();
  for (const RankFigures& rank : figures.ranks) {
    ranks.push_back({{"busy_ns", rank.busy_ns},
                     {"span_ns", rank.span_ns},
                     {"peak_activations", rank.peak_activations},
                     {"peak_bytes", rank.peak_bytes}});
  }
  return {{"makespan_ns", figures.makespan_ns},
          {"bubble_ratio", figures.bubble_ratio},
          {"span_bubble_ratio", figures.span_bubble_ratio},
          {"ranks", ranks}};
}

std::string percent_text(double ratio) { return formatted("%.1f %%", ratio * 100); }
std::string signed_percent_text(double ratio) { return formatted("%+.1f %%", ratio * 100); }

}  // namespace pipewright::tools
