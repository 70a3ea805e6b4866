// Published measurements of training (golden/measured/), each as a case that the analytical
// estimate can predict: shared by bench_accuracy, which prints docs/evidence/accuracy.md, and by
// the golden test that holds the errors down. Reads files; throws std::runtime_error for one that
// is not as described.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "planner/estimate/step_estimate.hpp"

namespace pipewright::test {

enum class Quantity { StepSeconds, BlockSeconds, PeakBytes, StateBytes, ActivationBytes };

inline bool is_time(Quantity quantity) {
  return quantity == Quantity::StepSeconds || quantity == Quantity::BlockSeconds;
}

/// One row. `candidates`: setups among which the authors' is not told; the one that the estimate
/// finds fastest within the device's memory stands for it.
struct MeasuredCase {
  std::string name;
  std::string choice_group;  // rows with the same text are choices for one job; empty: none
  Architecture model;
  FrameworkTraits framework;
  planner::Machine machine;
  planner::ParallelSetup setup;
  std::vector<planner::ParallelSetup> candidates;
  Quantity quantity = Quantity::StepSeconds;
  double measured = 0;  // seconds or bytes
  bool fitted = false;  // was among the rows that the efficiencies were fitted to
};

struct MeasuredTable {
  std::string title, file, about, peer;
  std::string limits;         // why no estimate comes closer, as far as it is known; may be empty
  double target_percent = 0;  // mean absolute error to reach; 0: none was set
  double target_correlation = 0;  // rank correlation to reach; 0: none was set
  std::vector<MeasuredCase> cases;
  bool calibrates = false;  // fitted to where sources are left out, but judged itself by no aim
  std::map<std::string, int> left_out = {};  // rows of the file that are no case, by reason
};

/// What the estimate says of a case.
double predicted(const MeasuredCase& row);

MeasuredTable vtrain_multi_node(const std::filesystem::path& folder);
MeasuredTable vtrain_single_node(const std::filesystem::path& folder);
MeasuredTable sequence_parallel_times(const std::filesystem::path& folder);
MeasuredTable sequence_parallel_memory(const std::filesystem::path& folder);
MeasuredTable b200_times(const std::filesystem::path& folder);
MeasuredTable b200_memory(const std::filesystem::path& folder);
MeasuredTable amp_homogeneous(const std::filesystem::path& folder);
MeasuredTable amp_mixed(const std::filesystem::path& folder);
MeasuredTable aceso_v100(const std::filesystem::path& folder);
MeasuredTable megatron_sc21(const std::filesystem::path& folder);
MeasuredTable megatron_core_h100(const std::filesystem::path& folder);
/// Steps of Megatron's own tests, of a few small blocks: what they take is the host's time.
MeasuredTable megatron_tests(const std::filesystem::path& folder);

/// All of them, in the order of the page.
std::vector<MeasuredTable> measured_tables(const std::filesystem::path& folder);

/// Those of golden/measured2.
std::vector<MeasuredTable> second_collection(const std::filesystem::path& folder);
/// Files of the same folder none of whose rows can be asked for; their tables say why.
std::vector<MeasuredTable> files_without_cases(const std::filesystem::path& folder);

/// Mean of |predicted - measured| / measured over rows that were fitted, or that were not; and of
/// all. In percent.
struct Errors {
  double all = 0, held_out = 0, worst = 0;
  double bias = 0;  // mean of (predicted - measured) / measured, in percent
  int rows = 0, fitted_rows = 0;
  int over_memory = 0;  // steps that ran, though the estimate finds no room for them
};
Errors errors_of(const MeasuredTable& table);

/// The rows that are off by more than `percent`, and those that are not.
struct FarRows {
  MeasuredTable far, near;
};
FarRows split_by_error(const MeasuredTable& table, double percent);

/// Rows that differ only in the samples of a micro-batch, twice as many for the second: how many
/// such pairs there are, and in how many the second, with twice the work, took less.
struct Contradictions {
  int pairs = 0, contradictory = 0;
  double worst_percent = 0;  // what the first took more
};
Contradictions contradictions_of(const MeasuredTable& table);

/// Rank correlation of predicted and measured.
double rank_correlation_of(const MeasuredTable& table);

/// Spearman's: Pearson's correlation of the ranks, ties sharing their mean rank.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

/// For each choice group: how much more the case with the least predicted time took than the one
/// with the least measured time, in percent.
struct Choice {
  std::string group, chosen, best;
  double cost_percent = 0;
  int cases = 0;
  bool is_told = false;  // the planner tells the best from the chosen (of left-out sources only)
};
std::vector<Choice> choices_of(const MeasuredTable& table);

}  // namespace pipewright::test
