// A small line chart as an element of a page: what each step of a run lost. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright::traces {

struct PageChart {
  std::string title;
  std::string unit_of_x;       // "step"
  std::int64_t first = 1;      // number of the first value
  std::vector<double> values;  // one that is not finite leaves a gap
};

/// "" without a finite value. Of more values than can be told apart each column of pixels keeps its
/// least and its greatest, so that no spike is lost.
std::string chart_element(const PageChart& chart);

}  // namespace pipewright::traces
