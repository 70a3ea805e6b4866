#include "planner/schedules/order_period.hpp"

#include <algorithm>
#include <array>

#include "planner/base/number_text.hpp"

namespace pipewright::planner {
namespace {

/// Rules that count micro-batches one by one, whichever they are.
constexpr std::array<std::string_view, 14> kOneByOne = {
    "naive",  "gpipe",  "1f1b",  "eager-1f1b", "looped-bfs", "zb-h1",  "zb-h2",
    "1f1b-v", "v-half", "v-min", "zbv",        "dualpipev",  "hanayo", "paddle-zbh1"};

/// Rules that take micro-batches in rounds: the parameter group, else `by_itself`.
int round_of(const ScheduleRequest& request, int by_itself) {
  const auto found = request.parameters.find("group");
  return found == request.parameters.end() ? by_itself
                                           : positive_integer(found->second).value_or(0);
}

}  // namespace

int order_period(const Schedule& schedule, const ScheduleRequest& request) {
  if (std::find(kOneByOne.begin(), kOneByOne.end(), schedule.name) != kOneByOne.end()) return 1;
  if (schedule.name == "dualpipe") return 2;
  if (schedule.name == "chimera" || schedule.name == "paddle-vpp") return request.ranks;
  if (schedule.name == "grouped-interleaved") return round_of(request, (request.ranks + 1) / 2);
  if (schedule.name == "interleaved" || schedule.name == "interleaved-zb") {
    // Where p does not divide m, the size of equal rounds is another one for each m.
    return round_of(request, request.micro_batches % request.ranks == 0 ? request.ranks : 0);
  }
  return 0;
}

}  // namespace pipewright::planner
