#include "planner/schedules/requested.hpp"

#include <cctype>

#include "core/order/call_faults.hpp"

namespace pipewright::planner {
namespace {

/// In lower case, without hyphens.
std::string letters_of(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (c != '-') kept += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return kept;
}

}  // namespace

const Schedule& schedule_meant(const std::string& name) {
  const Schedule& found = find_schedule(name);
  if (letters_of(found.name) == letters_of(name)) return found;
  for (const Schedule& schedule : schedules()) {
    if (letters_of(schedule.name) == letters_of(name)) return schedule;
  }
  return found;
}

std::string title_of(const Schedule& schedule, const ScheduleRequest& request) {
  std::string title = std::string(schedule.name) + ": p=" + std::to_string(request.ranks) +
                      " m=" + std::to_string(request.micro_batches);
  if (request.chunks > 1) title += " v=" + std::to_string(request.chunks);
  for (const auto& [key, value] : request.parameters) title += " " + key + "=" + value;
  return title;
}

std::string title_of(const Order& order, const std::string& source) {
  std::string title = source + ": p=" + std::to_string(order.rank_count());
  if (!holds_calls_alone(order)) {
    title +=
        " m=" + std::to_string(order.micro_batches) + " stages=" + std::to_string(order.stages());
  }
  return title;
}

}  // namespace pipewright::planner
