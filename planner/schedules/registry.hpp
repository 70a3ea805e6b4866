// The registry of schedules: each is a rule that makes an order, with its constraint, closed form
// and memory (docs/adding-a-schedule.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/order.hpp"

namespace pipewright::planner {

struct ScheduleRequest {
  int ranks = 1;                                  // p
  int micro_batches = 1;                          // m
  int chunks = 1;                                 // v, stages a rank
  std::map<std::string, std::string> parameters;  // "jobs" = "fused", "group" = "4"
  /// What a cost-driven schedule plans for, stage by stage; without stages F = I = W = 1, no
  /// latency, one unit of memory from F to W. The others do not look at it.
  CostTable costs = {};
  Bytes memory_limit = {};     // a rank's, for costs.memory; 0: what the schedule's name promises
  bool keeps_promise = false;  // more than its name promises it does not take of a larger limit
};

/// Where a schedule puts its stages.
enum class Layout : std::uint8_t {
  Loop,           // stage k*p + r on rank r
  V,              // stages r and 2p-1-r on rank r
  Waves,          // down and up the ranks again and again
  Bidirectional,  // two replicas of p stages, one each way
  Replicas,       // stages with replicas that take turns
};
/// Ranks of a pipeline that hold each stage, which all compute alike.
constexpr int holders_in(Layout layout) { return layout == Layout::Bidirectional ? 2 : 1; }
/// "loop", "v", "waves", "bidirectional", "replicas".
std::string_view to_string(Layout layout);

/// What `schedules show` prints of a schedule.
struct ScheduleText {
  std::string_view summary;     // one line
  std::string_view constraint;  // in words, with p, m, v
  std::string_view bubble;      // closed form of makespan - work, or "none known"
  std::string_view memory;      // peak live activations on rank r
  std::string_view source;      // paper or code it comes from
};

/// What sets a schedule apart for those who choose, bound or run one.
struct ScheduleTraits {
  bool splits_backward = false;  // I and W apart
  bool asynchronous = false;     // updates inside the step: actions name weight versions
  bool overlaps = false;       // pairs of a forward and a backward: one computes, one communicates
  bool one_at_a_time = false;  // a micro-batch enters when the one before it has left
  bool cost_driven = false;    // the order depends on ScheduleRequest::costs
  bool searched = false;       // by synthesis: slow, and the tuner tries it only where it is named
};

/// One entry. Functions are pure: any number of threads may call them.
struct Schedule {
  std::string_view name;
  std::vector<std::string_view> aliases;
  ScheduleText text;
  std::vector<std::string_view> parameters;  // keys it understands
  ScheduleTraits traits;
  int default_chunks = 1;  // v where the user says none
  Layout layout = Layout::Loop;
  /// The policy that shows what it is about, "" for the plan's default.
  std::string_view policy;
  /// nullopt: fine. Else one sentence: what is wrong, and the nearest legal choice.
  std::optional<std::string> (*refusal)(const ScheduleRequest&);
  Order (*make)(const ScheduleRequest&);
};

std::span<const Schedule> schedules();
/// By name or alias, case ignored. Throws InputError with a suggestion.
const Schedule& find_schedule(std::string_view name);
/// find_schedule(), except that `interleaved` asked for Paddle's jobs ("jobs" among the parameters)
/// is `paddle-vpp`.
const Schedule& resolve_schedule(std::string_view name,
                                 const std::map<std::string, std::string>& parameters);
/// Why the schedule cannot be made for the request, in one sentence; nullopt: it can. Unknown
/// parameters, counts below 1 and orders too large to hold are refused for every schedule alike.
std::optional<std::string> refusal_of(const Schedule& schedule, const ScheduleRequest& request);
/// Where the order that the schedule makes has its stages; of a bidirectional one the pipeline that
/// goes down. Call it for a request that is not refused.
Placement placement_of(const Schedule& schedule, const ScheduleRequest& request);
/// Checks parameters and constraint, then makes the order. Throws InputError with the refusal.
Order make_order(std::string_view name, const ScheduleRequest& request);

}  // namespace pipewright::planner
