#include "planner/schedules/planned_costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/base/number_text.hpp"

namespace pipewright::planner {
namespace {

/// Sums beyond this are refused, so that a few of them still add up within 64 bits.
constexpr double kLargestSum = 1e18;
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

/// What a rank's stages need: the forwards of one micro-batch, what an I takes beyond them, and
/// what is always there.
struct RankNeeds {
  std::int64_t forwards = 0, spare = 0, constant = 0;
  std::int64_t least() const { return constant + forwards + spare; }
};

std::vector<RankNeeds> needs_by_rank(const CostTable& costs, const Placement& placement) {
  std::vector<RankNeeds> needs(static_cast<std::size_t>(placement.ranks()));
  for (int s = 0; s < placement.stages(); ++s) {
    const StageMemory memory = costs.memory_or_unit(s);
    RankNeeds& rank =
        needs[static_cast<std::size_t>(placement.rank_of(StageId(s), MicroBatchId(0)).value)];
    rank.forwards += memory.f.value;
    rank.spare = std::max(rank.spare, memory.i.value);
    rank.constant += memory.constant.value;
  }
  return needs;
}

PlannedStage planned_stage(const CostTable& costs, const Placement& placement, int s) {
  PlannedStage stage;
  const auto rank_of = [&](int k) { return placement.rank_of(StageId(k), MicroBatchId(0)); };
  const auto wait = [&](ActionKind kind, int from, int to) -> std::int64_t {
    if (to < 0 || from < 0 || from >= placement.stages() || rank_of(from) == rank_of(to)) return 0;
    return costs.transfer_time({kind, StageId(from), rank_of(from), rank_of(to)}, placement.ranks())
        .value;
  };
  stage.rank = rank_of(s).value;
  if (!costs.stages.empty()) {
    const StageCosts& each = costs.stages[static_cast<std::size_t>(s)];
    stage.f = each.f.value;
    stage.i = each.i.value;
    stage.w = each.w.value;
    stage.wait_f = wait(ActionKind::SendF, s - 1, s);
    stage.wait_i = wait(ActionKind::SendB, s + 1, s);
  }
  const StageMemory memory = costs.memory_or_unit(s);
  stage.memory_f = memory.f.value;
  stage.memory_i = memory.i.value;
  stage.memory_w = memory.w.value;
  return stage;
}

std::optional<std::string> refuse_tables(const std::string& name, const CostTable& costs,
                                         int stages) {
  const auto wrong = [&](const char* table, std::size_t entries) {
    return name + " has " + count_of(stages, "stage") + ", but the " + table + " table has " +
           std::to_string(entries) + "; give one entry for each stage, or none";
  };
  if (!costs.stages.empty() && costs.stages.size() != static_cast<std::size_t>(stages))
    return wrong("cost", costs.stages.size());
  if (!costs.memory.empty() && costs.memory.size() != static_cast<std::size_t>(stages))
    return wrong("memory", costs.memory.size());
  return std::nullopt;
}

std::optional<std::string> refuse_stage(const std::string& name, const PlannedStage& stage, int s) {
  const std::string which = "stage " + std::to_string(s);
  if (std::min({stage.f, stage.i, stage.w, stage.wait_f, stage.wait_i}) < 0)
    return name + " cannot plan with the negative cost of " + which + "; use 0 or more";
  if (stage.memory_f < 0 || stage.memory_w > 0)
    return name + " plans with memory that F takes and W gives back, but " + which + " has F " +
           std::to_string(stage.memory_f) + " and W " + std::to_string(stage.memory_w) +
           "; use F of 0 or more and W of 0 or less";
  const std::int64_t kept = stage.memory_f + stage.memory_i + stage.memory_w;
  if (kept <= 0) return std::nullopt;
  return "each micro-batch would leave memory behind on " + which + ": its F, I and W add up to " +
         std::to_string(kept) + "; let " + name + " have values that add up to 0";
}

/// All times added up, and all memory at its largest, stay far from 2^63.
std::optional<std::string> refuse_sums(const std::string& name, const ScheduleRequest& request,
                                       const Placement& placement) {
  double time = 0, memory = 0;
  for (int s = 0; s < placement.stages(); ++s) {
    const PlannedStage stage = planned_stage(request.costs, placement, s);
    const auto real = [](std::int64_t value) { return std::abs(static_cast<double>(value)); };
    time += real(stage.f) + real(stage.i) + real(stage.w) + real(stage.wait_f) + real(stage.wait_i);
    memory += real(stage.memory_f) + real(stage.memory_i) + real(stage.memory_w) +
              real(request.costs.memory_or_unit(s).constant.value);
  }
  if (time * request.micro_batches > kLargestSum)
    return "the costs of " + count_of(request.micro_batches, "micro-batch") +
           " add up to more than " + "10^18 ns, 31 years; use smaller ones with " + name;
  if (memory * std::max(request.micro_batches, 2 * request.ranks) > kLargestSum)
    return "the memory of " + count_of(request.micro_batches, "micro-batch") +
           " adds up to more than 10^18 bytes; use smaller ones with " + name;
  return std::nullopt;
}

std::optional<std::string> refuse_limit(const std::string& name, const ScheduleRequest& request,
                                        const Placement& placement) {
  if (request.memory_limit.value == 0) return std::nullopt;
  const auto needs = needs_by_rank(request.costs, placement);
  const auto largest = std::max_element(
      needs.begin(), needs.end(),
      [](const RankNeeds& a, const RankNeeds& b) { return a.least() < b.least(); });
  if (largest->least() <= request.memory_limit.value) return std::nullopt;
  return "a memory limit of " + std::to_string(request.memory_limit.value) + " is too small for " +
         name + ": one micro-batch takes " + std::to_string(largest->least()) + " on rank " +
         std::to_string(largest - needs.begin()) + "; use a limit of at least " +
         std::to_string(largest->least());
}

}  // namespace

PlannedCosts planned_costs(const ScheduleRequest& request, const Placement& placement,
                           int under_way) {
  PlannedCosts planned;
  planned.ranks = request.ranks;
  planned.chunks = request.chunks;
  planned.micro_batches = request.micro_batches;
  std::vector<std::vector<std::int32_t>> held(static_cast<std::size_t>(request.ranks));
  planned.busy.resize(static_cast<std::size_t>(request.ranks));
  for (int s = 0; s < placement.stages(); ++s) {
    const PlannedStage stage = planned_stage(request.costs, placement, s);
    const std::size_t rank = static_cast<std::size_t>(stage.rank);
    planned.stages.push_back(stage);
    planned.busy[rank] += (stage.f + stage.i + stage.w) * request.micro_batches;
    held[rank].push_back(s);
  }
  for (const auto& stages : held)
    planned.stage_of.insert(planned.stage_of.end(), stages.begin(), stages.end());
  for (const RankNeeds& needs : needs_by_rank(request.costs, placement)) {
    std::int64_t room = kUnlimited;
    if (request.memory_limit.value != 0) room = request.memory_limit.value - needs.constant;
    if (under_way > 0 && (request.memory_limit.value == 0 || request.keeps_promise))
      room = std::min(room, std::max(under_way * needs.forwards, needs.forwards + needs.spare));
    planned.room_i.push_back(room);
    planned.room_f.push_back(room - needs.spare);
    planned.window.push_back(needs.forwards == 0 ? request.micro_batches
                                                 : (room - needs.spare) / needs.forwards);
  }
  return planned;
}

std::optional<std::string> refuse_costs(std::string_view name, const ScheduleRequest& request,
                                        const Placement& placement) {
  const std::string who(name);
  if (auto refused = refuse_tables(who, request.costs, placement.stages())) return refused;
  if (auto refused = refuse_sums(who, request, placement)) return refused;
  for (int s = 0; s < placement.stages(); ++s) {
    const PlannedStage stage = planned_stage(request.costs, placement, s);
    if (auto refused = refuse_stage(who, stage, s)) return refused;
  }
  return refuse_limit(who, request, placement);
}

}  // namespace pipewright::planner
