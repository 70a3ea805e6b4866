#include "planner/explanation.hpp"

#include <algorithm>

#include "planner/evaluation.hpp"
#include "planner/executable.hpp"
#include "planner/named_configuration.hpp"
#include "planner/number_text.hpp"
#include "planner/rank_limits.hpp"

namespace pipewright::planner {
namespace {

std::string percent_more(Nanoseconds step, Nanoseconds best) {
  return percent(static_cast<double>(step.value) / static_cast<double>(best.value) - 1);
}

void compare(const Candidate& row, const SearchResult& found, Explanation& explanation) {
  if (found.ranked.empty()) return;
  const Candidate& best = found.ranked.front();
  const auto place =
      std::find_if(found.ranked.begin(), found.ranked.end(), [&](const Candidate& other) {
        return describe(other) == describe(row) && other.partition == row.partition;
      });
  if (place != found.ranked.end()) {
    explanation.sentences.push_back(
        "It is number " + std::to_string(place - found.ranked.begin() + 1) + " of the table.");
  }
  if (row.step > best.step) {
    explanation.sentences.push_back("The best, " + describe(best) + ", takes " +
                                    format_duration(best.step) + ": this takes " +
                                    percent_more(row.step, best.step) + " longer.");
  }
}

bool is_over(Bytes peak, Bytes limit) { return limit.value > 0 && peak > limit; }

/// Sets is_possible. Where nodes differ in memory, a rank that does not hold the most may be over.
void judge_memory(const Evaluation& evaluation, const RankLimits& limits,
                  Explanation& explanation) {
  const Candidate& row = evaluation.candidate;
  const Bytes limit = limits.of(row.fullest_rank);
  explanation.is_possible = !is_over(row.peak_bytes, limit);
  explanation.sentences.push_back(
      "Rank " + std::to_string(row.fullest_rank) + " holds the most, " +
      format_bytes(row.peak_bytes) + " (" + format_bytes(row.state_bytes) +
      " of weights, gradients and optimizer state)" +
      (explanation.is_possible ? "." : ": over the " + format_bytes(limit) + " allowed."));
  if (!explanation.is_possible || limits.own.empty()) return;
  for (std::size_t r = 0; r < evaluation.rank_peaks.size(); ++r) {
    const Bytes peak = evaluation.rank_peaks[r], own = limits.of(static_cast<int>(r));
    if (!is_over(peak, own)) continue;
    explanation.is_possible = false;
    explanation.sentences.push_back("Rank " + std::to_string(r) + " holds " + format_bytes(peak) +
                                    ", over the " + format_bytes(own) +
                                    " that its nodes' devices allow.");
    return;
  }
}

}  // namespace

Explanation explain(const Job& job, const Profile* profile, int cores, const SearchResult& found,
                    const std::string& text) {
  const auto costs = costs_of_job(job, profile, cores);
  std::optional<Candidate> best;
  if (!found.ranked.empty()) best = found.ranked.front();
  // What is not asked for is as in the best, and a named schedule is what it was made from.
  if (best && best->synthesised) best->schedule = best->synthesised->from;
  const NamedConfiguration asked = read_configuration(text, job, best ? &*best : nullptr);
  Explanation explanation;
  explanation.sentences.push_back("Asked for: " + describe(unpriced(asked.configuration)) + ".");
  if (const auto rule = broken_rule(asked, job, *costs)) {
    explanation.sentences.push_back(*rule);
    return explanation;
  }
  const Branch branch = branch_of(asked.configuration, *costs);
  explanation.sentences.push_back("No order of these stages ends before " +
                                  format_duration(Nanoseconds(branch.bound)) + ".");
  const Evaluation evaluation = evaluate(job, *costs, branch, Bytes(0));
  if (!evaluation.pruned.empty()) {
    explanation.sentences.push_back("It " + evaluation.pruned + ".");
    return explanation;
  }
  const Candidate& row = evaluation.candidate;
  explanation.candidate = row;
  if (row.parallel.recompute_by_stage)
    explanation.sentences.push_back(
        "Stages compute again: " + describe_recompute(row.parallel.recompute_of_stage) + ".");
  explanation.sentences.push_back("Simulated: " + format_duration(row.step) + " a step, " +
                                  percent(row.bubble_ratio) + " of the ranks' time in bubbles.");
  judge_memory(evaluation, limits_of(*costs, row.parallel, costs->memory_limit()), explanation);
  compare(row, found, explanation);
  for (const std::string& what : missing_everywhere(job, row.parallel))
    explanation.sentences.push_back("The executor cannot run it: it has no " + what + ".");
  return explanation;
}

}  // namespace pipewright::planner
