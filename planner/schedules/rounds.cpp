#include "planner/schedules/rounds.hpp"

#include <algorithm>

#include "planner/base/number_text.hpp"

namespace pipewright::planner {
namespace {

int rounds_of(int micro_batches, int ranks) { return std::max(1, micro_batches / ranks); }

bool are_equal(int micro_batches, int ranks) {
  return micro_batches % rounds_of(micro_batches, ranks) == 0;
}

}  // namespace

int equal_round(const ScheduleRequest& request) {
  return request.micro_batches / rounds_of(request.micro_batches, request.ranks);
}

std::optional<std::string> refuse_unequal_rounds(std::string_view name,
                                                 const ScheduleRequest& request) {
  const int m = request.micro_batches, p = request.ranks;
  if (are_equal(m, p)) return std::nullopt;
  // Multiples of p always fall into equal rounds, so both searches end.
  int less = m - 1, more = m + 1;
  while (!are_equal(less, p)) --less;
  while (!are_equal(more, p)) ++more;
  return std::string(name) + " takes micro-batches in equal rounds, and " + std::to_string(m) +
         " micro-batches do not divide into " + std::to_string(rounds_of(m, p)) + " rounds on " +
         count_of(p, "rank") + "; use " + std::to_string(less) + " or " + std::to_string(more) +
         " micro-batches";
}

}  // namespace pipewright::planner
