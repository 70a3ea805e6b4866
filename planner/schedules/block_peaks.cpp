#include "planner/schedules/block_peaks.hpp"

#include <algorithm>

#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

/// Half, a third and two thirds of 1F1B's p micro-batches (2p chunks), rounded to whole periods.
std::optional<int> most_of_v_block(std::string_view schedule, int p) {
  if (schedule == "v-half") return 2 * (p / 2) + 2;
  if (schedule == "v-min") return 2 * ((p + 4) / 3);
  if (schedule == "1f1b-v") return 2 * ((2 * p + 3) / 3);
  return std::nullopt;
}

/// G micro-batches wait in each chunk but the last, and in that one what is on its way below.
std::vector<int> grouped_peaks(const ScheduleRequest& request) {
  const int p = request.ranks, m = request.micro_batches;
  const auto found = request.parameters.find("group");
  const int group =
      found == request.parameters.end() ? (p + 1) / 2 : positive_integer(found->second).value_or(0);
  std::vector<int> peaks;
  for (int r = 0; r < p; ++r) {
    peaks.push_back((request.chunks - 1) * std::min(m, group) + std::min(m, p - r));
  }
  return peaks;
}

}  // namespace

std::optional<std::vector<int>> block_peaks(std::string_view schedule,
                                            const ScheduleRequest& request) {
  if (schedule == "grouped-interleaved") return grouped_peaks(request);
  const int p = request.ranks;
  const auto most = most_of_v_block(schedule, p);
  if (!most || request.micro_batches < *most - 1) return std::nullopt;
  std::vector<int> peaks(static_cast<std::size_t>(p), *most);
  // Its reorderings find no use for the last activation of rank 0 there. No proof: found by
  // running, and held for all p up to 64 in tests/property/building_blocks_test.cpp.
  if (schedule == "v-min" && p % 3 == 2) peaks.front() -= 1;
  return peaks;
}

}  // namespace pipewright::planner
