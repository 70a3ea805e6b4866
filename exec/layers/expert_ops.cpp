#include "exec/layers/expert_ops.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace pipewright::exec {

std::size_t route_words(const RouterShape& shape) {
  return static_cast<std::size_t>(shape.runs()) + 1 + 3 * shape.pairs();
}

Routes routes_in(const RouterShape& shape, std::int32_t* words) {
  std::int32_t* const expert = words + shape.runs() + 1;
  const std::size_t pairs = shape.pairs();
  return {words, expert, expert + pairs, expert + 2 * pairs};
}

int even_rows(const ExpertChoice& choice, std::int64_t rows, int ranks) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const std::int64_t places = expert_capacity(choice, rows * ranks) * choice.experts;
  return static_cast<int>(std::min({kMost, rows * choice.top_k, (places + ranks - 1) / ranks}));
}

int most_rows(const ExpertChoice& choice, std::int64_t rows, int experts, int ranks) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min({kMost, rows * std::min(choice.top_k, experts),
                                    expert_capacity(choice, rows * ranks) * experts}));
}

std::vector<std::int32_t> counts_of(const RunBegins& begins) {
  std::vector<std::int32_t> counts;
  for (std::size_t i = 0; i + 1 < begins->size(); ++i)
    counts.push_back((*begins)[i + 1] - (*begins)[i]);
  return counts;
}

RunBegins begins_of(std::span<const std::int32_t> counts) {
  std::vector<std::int32_t> begins{0};
  for (const std::int32_t rows : counts) begins.push_back(begins.back() + rows);
  return std::make_shared<const std::vector<std::int32_t>>(std::move(begins));
}

void count_evenly(int rows, std::span<std::int32_t> counts) {
  const auto runs = static_cast<std::int64_t>(counts.size());
  for (std::int64_t i = 0; i < runs; ++i)
    counts[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>((i + 1) * rows / runs - i * rows / runs);
}

}  // namespace pipewright::exec
