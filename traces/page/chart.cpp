#include "traces/page/chart.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "traces/pictures/escape.hpp"

namespace pipewright::traces {
namespace {

// Pixels.
constexpr int kWidth = 640, kHeight = 150, kChartLeft = 64, kChartRight = 10, kChartTop = 8,
              kChartBottom = 22;
constexpr int kChartColumns = kWidth - kChartLeft - kChartRight,
              kChartRows = kHeight - kChartTop - kChartBottom;

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string pixel_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
};

Range range_of(const std::vector<double>& values) {
  Range range;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    range.least = std::min(range.least, value);
    range.most = std::max(range.most, value);
  }
  return range;
}

/// Which values are drawn, ascending: all, or of each column its extremes and what is not finite.
std::vector<std::size_t> drawn_values(const std::vector<double>& values) {
  std::vector<std::size_t> drawn;
  const std::size_t columns = std::min<std::size_t>(kChartColumns, values.size());
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t from = column * values.size() / columns;
    const std::size_t to = (column + 1) * values.size() / columns;
    std::size_t least = from, most = from;
    for (std::size_t i = from; i < to; ++i) {
      if (!std::isfinite(values[i])) {
        drawn.push_back(i);
        continue;
      }
      if (!std::isfinite(values[least]) || values[i] < values[least]) least = i;
      if (!std::isfinite(values[most]) || values[i] > values[most]) most = i;
    }
    drawn.insert(drawn.end(), {least, most});
  }
  std::sort(drawn.begin(), drawn.end());
  drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  return drawn;
}

/// A line for each run of finite values; of a single one a short dash.
std::string lines_of(const PageChart& chart, const Range& range) {
  const double steps = static_cast<double>(std::max<std::size_t>(1, chart.values.size() - 1));
  std::string lines, points;
  std::size_t count = 0;
  const auto end_line = [&] {
    if (count == 1) points += " h3";
    if (count > 0) lines += "<path d=\"" + points + "\"/>";
    points.clear();
    count = 0;
  };
  for (const std::size_t i : drawn_values(chart.values)) {
    const double value = chart.values[i];
    if (!std::isfinite(value)) {
      end_line();
      continue;
    }
    const double part =
        range.most > range.least ? (value - range.least) / (range.most - range.least) : 0.5;
    const double x = kChartLeft + kChartColumns * static_cast<double>(i) / steps;
    points += (count == 0 ? "M" : " L") + pixel_text(x) + "," +
              pixel_text(kChartTop + kChartRows * (1 - part));
    ++count;
  }
  end_line();
  return lines;
}

std::string label(double x, double y, std::string_view anchor, const std::string& text) {
  return "<text x=\"" + pixel_text(x) + "\" y=\"" + pixel_text(y) + "\" text-anchor=\"" +
         std::string(anchor) + "\">" + escaped(text) + "</text>";
}

}  // namespace

std::string chart_element(const PageChart& chart) {
  const Range range = range_of(chart.values);
  if (!(range.least <= range.most)) return "";
  const auto last = chart.first + static_cast<std::int64_t>(chart.values.size()) - 1;
  std::string text = "<figure><figcaption>" + escaped(chart.title) +
                     "</figcaption>\n<svg viewBox=\"0 0 " + std::to_string(kWidth) + " " +
                     std::to_string(kHeight) + "\" role=\"img\" aria-label=\"" +
                     escaped(chart.title) + "\">";
  text += "<rect x=\"" + std::to_string(kChartLeft) + "\" y=\"" + std::to_string(kChartTop) +
          "\" width=\"" + std::to_string(kChartColumns) + "\" height=\"" +
          std::to_string(kChartRows) + "\"/>";
  text += label(kChartLeft - 6, kChartTop + 9, "end", number_text(range.most));
  if (range.most > range.least)
    text += label(kChartLeft - 6, kChartTop + kChartRows, "end", number_text(range.least));
  text +=
      label(kChartLeft, kHeight - 6, "start", chart.unit_of_x + " " + std::to_string(chart.first));
  if (last > chart.first)
    text += label(kWidth - kChartRight, kHeight - 6, "end", std::to_string(last));
  return text + lines_of(chart, range) + "</svg></figure>\n";
}

}  // namespace pipewright::traces
