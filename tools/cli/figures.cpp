#include "tools/cli/figures.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace pipewright::tools {
namespace {
std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
}  // namespace

std::string nanoseconds_key(std::string_view words) {
  std::string key(words);
  std::replace(key.begin(), key.end(), ' ', '_');
  return key + "_ns";
}

Json rank_fields(const std::vector<RankFigures>& ranks, int devices_of_rank) {
  Json list = Json::array();
  for (const RankFigures& rank : ranks) {
    Json& fields = list.emplace_back(Json{{"busy_ns", rank.busy_ns},
                                          {"span_ns", rank.span_ns},
                                          {"peak_activations", rank.peak_activations},
                                          {"peak_bytes", rank.peak_bytes}});
    if (devices_of_rank > 1) fields["devices"] = devices_of_rank;
  }
  return list;
}

Json figures_fields(const Figures& figures, int devices_of_rank) {
  return {{"makespan_ns", figures.makespan_ns},
          {"bubble_ratio", figures.bubble_ratio},
          {"span_bubble_ratio", figures.span_bubble_ratio},
          {"ranks", rank_fields(figures.ranks, devices_of_rank)}};
}

std::string time_text(double ns) { return format_duration(Nanoseconds(std::llround(ns))); }

std::string percent_text(double ratio) { return formatted("%.1f %%", ratio * 100); }
std::string signed_percent_text(double ratio) { return formatted("%+.1f %%", ratio * 100); }

}  // namespace pipewright::tools
