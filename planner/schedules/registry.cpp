#include "planner/schedules/registry.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "planner/base/number_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

/// About 7 GB of cells. Beyond that the order is a slip of the keyboard, not a plan.
constexpr double kMostScheduleActions = 2e8;
/// The largest stage number that an instruction can hold, plus one.
constexpr std::int64_t kMostStages = 65535;

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

bool answers_to(const Schedule& schedule, std::string_view name) {
  return same_name(schedule.name, name) ||
         std::any_of(schedule.aliases.begin(), schedule.aliases.end(),
                     [&](std::string_view alias) { return same_name(alias, name); });
}

std::optional<std::string> refuse_counts(const ScheduleRequest& request) {
  if (request.ranks < 1 || request.micro_batches < 1 || request.chunks < 1) {
    return "a schedule needs at least 1 rank, 1 micro-batch and 1 chunk a rank, not " +
           std::to_string(request.ranks) + ", " + std::to_string(request.micro_batches) + " and " +
           std::to_string(request.chunks);
  }
  const std::int64_t stages = std::int64_t{request.ranks} * request.chunks;
  if (stages > kMostStages) {
    return std::to_string(request.ranks) + " ranks with " + count_of(request.chunks, "chunk") +
           " make " + std::to_string(stages) + " stages; at most " + std::to_string(kMostStages) +
           " are possible";
  }
  const double actions = 3.0 * static_cast<double>(stages) * request.micro_batches;
  if (actions > kMostScheduleActions) {
    return count_of(request.ranks, "rank") + ", " + count_of(request.chunks, "chunk") + " and " +
           std::to_string(request.micro_batches) +
           " micro-batches make more than 200 million actions; use fewer micro-batches";
  }
  return std::nullopt;
}

std::optional<std::string> refuse_parameters(const Schedule& schedule,
                                             const ScheduleRequest& request) {
  for (const auto& [key, value] : request.parameters) {
    const auto& known = schedule.parameters;
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string list;
    for (const auto name : known) list += (list.empty() ? "" : ", ") + std::string(name);
    return std::string(schedule.name) + " has no parameter \"" + key + "\"" +
           did_you_mean(key, known) + (known.empty() ? "; it takes none" : "; it takes " + list);
  }
  return std::nullopt;
}

}  // namespace

std::span<const Schedule> schedules() {
  // One line each, sorted from simple to hard: of two equals the tuner takes the earlier one.
  static const std::array kSchedules = {
      naive_schedule(),                //
      gpipe_schedule(),                //
      one_f_one_b_schedule(),          //
      eager_1f1b_schedule(),           //
      looped_bfs_schedule(),           //
      interleaved_schedule(),          //
      grouped_interleaved_schedule(),  //
      zb_h1_schedule(),                //
      zb_h2_schedule(),                //
      zb_1p_schedule(),                //
      zb_2p_schedule(),                //
      interleaved_zb_schedule(),       //
      one_f_one_b_v_schedule(),        //
      v_half_schedule(),               //
      v_min_schedule(),                //
      zbv_schedule(),                  //
      zbv_auto_schedule(),             //
      zbvpp_schedule(),                //
      dualpipev_schedule(),            //
      dualpipe_schedule(),             //
      chimera_schedule(),              //
      hanayo_schedule(),               //
      paddle_vpp_schedule(),           //
      paddle_zbh1_schedule(),          //
      pipedream_schedule(),            //
      pipedream_2bw_schedule(),        //
      one_f_one_b_rr_schedule(),       //
      auto_schedule(),                 //
  };
  return kSchedules;
}

const Schedule& find_schedule(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Schedule& schedule : schedules()) {
    if (answers_to(schedule, name)) return schedule;
    names.push_back(schedule.name);
    names.insert(names.end(), schedule.aliases.begin(), schedule.aliases.end());
  }
  throw InputError("there is no schedule \"" + std::string(name) + "\"" +
                   did_you_mean(name, names) + "; `pipewright schedules list` shows all");
}

const Schedule& resolve_schedule(std::string_view name,
                                 const std::map<std::string, std::string>& parameters) {
  const Schedule& schedule = find_schedule(name);
  const bool paddle = schedule.name == "interleaved" && parameters.count("jobs") > 0;
  return paddle ? find_schedule("paddle-vpp") : schedule;
}

std::optional<std::string> refusal_of(const Schedule& schedule, const ScheduleRequest& request) {
  if (auto refused = refuse_counts(request)) return refused;
  if (auto refused = refuse_parameters(schedule, request)) return refused;
  return schedule.refusal(request);
}

std::string_view to_string(Layout layout) {
  constexpr std::string_view kNames[] = {"loop", "v", "waves", "bidirectional", "replicas"};
  return kNames[static_cast<std::size_t>(layout)];
}

Placement placement_of(const Schedule& schedule, const ScheduleRequest& request) {
  switch (schedule.layout) {
    case Layout::V:
    case Layout::Waves:
      return waves(request.ranks, request.chunks);
    case Layout::Bidirectional:  // of the pipeline that goes down
      return Placement::loop(request.ranks, 1);
    case Layout::Replicas:
      return schedule.make(request).placement;
    case Layout::Loop:
      break;
  }
  const auto asked = request.parameters.find("placement");
  if (schedule.traits.searched && asked != request.parameters.end() && asked->second == "v")
    return Placement::v_shape(request.ranks);
  return Placement::loop(request.ranks, request.chunks);
}

Order make_order(std::string_view name, const ScheduleRequest& request) {
  const Schedule& schedule = resolve_schedule(name, request.parameters);
  if (const auto refused = refusal_of(schedule, request)) throw InputError(*refused);
  return schedule.make(request);
}

}  // namespace pipewright::planner
