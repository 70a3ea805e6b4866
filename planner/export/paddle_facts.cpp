#include "planner/export/paddle_facts.hpp"

#include <array>
#include <utility>

namespace pipewright::planner {
namespace {

/// Only where the order is Paddle's own: its VPP and ZBH1 differ from Megatron's and the paper's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kModes{{
    {"gpipe", "FThenB"},
    {"1f1b", "1F1B"},
    {"eager-1f1b", "Eager1F1B"},
    {"paddle-vpp", "VPP"},
    {"paddle-zbh1", "ZBH1"},
    {"zbvpp", "ZBVPP"},
}};

std::string nearest_to(std::string_view schedule) {
  if (schedule == "interleaved") return "; nearest is paddle-vpp";
  if (schedule == "zb-h1") return "; nearest is paddle-zbh1";
  return "";
}

}  // namespace

std::string_view paddle_schedule_mode(std::string_view schedule) {
  for (const auto& [ours, theirs] : kModes) {
    if (ours == schedule) return theirs;
  }
  return {};
}

void refuse_for_paddle(const PlanFacts& facts, ExportedPlan& result) {
  require_one_recompute(facts, "Paddle", result);
  if (facts.pipeline > 1 && paddle_schedule_mode(facts.schedule).empty()) {
    result.refusals.push_back(
        "Paddle has the orders of gpipe, 1f1b, eager-1f1b, paddle-vpp, paddle-zbh1 and zbvpp; the "
        "plan's schedule is " +
        facts.schedule + nearest_to(facts.schedule) +
        "; tune with these in strategy.schedule_mode");
  }
  if (facts.context > 1) {
    result.refusals.push_back(
        "Paddle's strategy has no context parallelism (its sep_degree exchanges heads instead); "
        "take cp 1");
  }
  if (facts.experts > 1) {
    result.refusals.push_back(
        "Paddle's strategy has no degree of expert parallelism; the model's code places experts");
  }
}

void note_uneven_stages(const PlanFacts& facts, ExportedPlan& result) {
  const int stages = static_cast<int>(facts.stages.size());
  if (stages < 2) return;
  const int blocks = facts.model->blocks;
  for (int stage = 0; stage < stages; ++stage) {
    const int usual = blocks / stages + (stage < blocks % stages ? 1 : 0);
    if (facts.stages[static_cast<std::size_t>(stage)].blocks == usual) continue;
    result.notes.push_back(
        "Paddle cuts blocks evenly unless the model's code says otherwise; the "
        "plan's stages are " +
        describe(facts.stages));
    return;
  }
}

}  // namespace pipewright::planner
