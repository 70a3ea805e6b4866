#include "tools/output/memory_text.hpp"

#include <algorithm>

#include "planner/memory/memory.hpp"
#include "tools/cli/figures.hpp"

namespace pipewright::tools {
namespace {

double error_of(std::int64_t predicted, std::int64_t measured) {
  return measured == 0 ? 0 : static_cast<double>(predicted) / static_cast<double>(measured) - 1;
}

/// What a plan speaks of, by rank.
std::vector<std::int64_t> planned_part(const exec::TrainingResult& result) {
  std::vector<std::int64_t> planned = result.peak_bytes;
  for (std::size_t r = 0; r < result.unplanned_bytes.size(); ++r)
    planned[r] -= result.unplanned_bytes[r];
  return planned;
}

}  // namespace

void take_memory_of_run(Plan& plan, CostTable& costs, exec::RunMode mode, exec::Numerics numerics,
                        bool has_own_table) {
  if (plan.costs.memory.empty()) return;
  for (std::size_t s = 0; s < plan.costs.memory.size(); ++s) {
    StageMemory& memory = plan.costs.memory[s];
    memory = planner::memory_of_run(plan, s, memory, numerics, mode);
  }
  if (!has_own_table) costs.memory = plan.costs.memory;
}

void leave_out_copies(CostTable& costs) {
  for (StageMemory& stage : costs.memory) stage.copied_gradients = stage.copied_weights = Bytes(0);
}

std::string memory_text(const exec::TrainingResult& result, const CostTable& costs) {
  if (result.peak_bytes.empty()) return "";
  const auto& all = result.peak_bytes;
  const std::vector<std::int64_t> held = planned_part(result);
  const auto fullest =
      static_cast<std::size_t>(std::max_element(all.begin(), all.end()) - all.begin());
  std::string text =
      "peak memory " + format_bytes(Bytes(all[fullest])) + " on rank " + std::to_string(fullest);
  if (held[fullest] != all[fullest])
    text +=
        ", without libraries' own memory and unused blocks " + format_bytes(Bytes(held[fullest]));
  if (costs.memory.empty()) return text + "\n";
  const auto& said = result.figures.ranks;
  double least = error_of(said[0].peak_bytes, held[0]), most = least;
  for (std::size_t r = 1; r < held.size(); ++r) {
    const double error = error_of(said[r].peak_bytes, held[r]);
    least = std::min(least, error);
    most = std::max(most, error);
  }
  if (least == 0 && most == 0) return text + ", as predicted for every rank\n";
  text += ", predicted " + format_bytes(Bytes(said[fullest].peak_bytes));
  if (held.size() == 1) return text + "\n";
  return text + "; predictions are off by " + signed_percent_text(least) + " to " +
         signed_percent_text(most) + "\n";
}

void put_memory(const exec::TrainingResult& result, const CostTable& costs, Json& fields) {
  if (result.peak_bytes.empty()) return;
  fields["peak_bytes"] = result.peak_bytes;
  if (!result.unplanned_bytes.empty()) fields["unplanned_bytes"] = result.unplanned_bytes;
  if (costs.memory.empty()) return;
  Json predicted = Json::array();
  for (const RankFigures& rank : result.figures.ranks) predicted.push_back(rank.peak_bytes);
  fields["predicted_peak_bytes"] = std::move(predicted);
}

}  // namespace pipewright::tools
