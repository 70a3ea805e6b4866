#include "core/timeline/ratios.hpp"

namespace pipewright {

void set_ratios(Figures& figures) {
  std::int64_t busy = 0;
  const RankFigures* longest = nullptr;
  for (const RankFigures& rank : figures.ranks) {
    busy += rank.busy_ns;
    if (longest == nullptr || rank.span_ns > longest->span_ns) longest = &rank;
  }
  const double whole =
      static_cast<double>(figures.makespan_ns) * static_cast<int>(figures.ranks.size());
  figures.bubble_ratio = whole > 0 ? 1.0 - static_cast<double>(busy) / whole : 0.0;
  figures.span_bubble_ratio = 0.0;
  if (longest != nullptr && longest->span_ns > 0) {
    figures.span_bubble_ratio =
        1.0 - static_cast<double>(longest->busy_ns) / static_cast<double>(longest->span_ns);
  }
}

}  // namespace pipewright
