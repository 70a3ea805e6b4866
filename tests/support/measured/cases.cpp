#include "tests/support/measured/cases.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "planner/estimate/block_kernels.hpp"
#include "planner/estimate/parallel_space.hpp"
#include "planner/measured/normal.hpp"
#include "tests/support/left_out.hpp"

namespace pipewright::test {

namespace {

using planner::estimate_memory;
using planner::estimate_step;
using planner::ParallelSetup;
using planner::RankBytes;

double largest(const std::vector<RankBytes>& ranks) {
  double most = 0;
  for (const RankBytes& rank : ranks) most = std::max(most, rank.peak());
  return most;
}

/// As `estimate` judges it, with what it leaves free.
bool fits(const MeasuredCase& row, const ParallelSetup& setup) {
  const planner::ParallelSpace space;
  return largest(estimate_memory(row.model, row.framework, setup)) <=
         planner::usable_bytes(space, row.machine.nodes.front());
}

double step_seconds(const MeasuredCase& row, const ParallelSetup& setup) {
  return estimate_step(row.model, row.framework, row.machine, setup).step;
}

/// The fastest that fits, or where the estimate has room for none, though one ran, of all.
double best_of_candidates(const MeasuredCase& row) {
  double best = 0, best_of_all = 0;
  for (const ParallelSetup& setup : row.candidates) {
    if (planner::refusal(row.model, row.machine, setup)) continue;
    const double seconds = step_seconds(row, setup);
    if (best_of_all == 0 || seconds < best_of_all) best_of_all = seconds;
    if ((best == 0 || seconds < best) && fits(row, setup)) best = seconds;
  }
  if (best_of_all == 0) throw std::runtime_error(row.name + ": no candidate can run");
  return best > 0 ? best : best_of_all;
}

/// Whether the estimate finds room for the row, or for one of its candidates.
bool has_room(const MeasuredCase& row) {
  if (row.candidates.empty()) return fits(row, row.setup);
  return std::ranges::any_of(row.candidates, [&](const ParallelSetup& setup) {
    return !planner::refusal(row.model, row.machine, setup) && fits(row, setup);
  });
}

double block_of(const MeasuredCase& row) {
  const auto block = planner::block_seconds(row.model, row.framework, row.machine.nodes.front(),
                                            row.machine.devices_per_node, row.setup, kDenseBlock);
  return block.forward + block.backward;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t from = 0; from < order.size();) {
    std::size_t end = from;
    while (end < order.size() && values[order[end]] == values[order[from]]) ++end;
    const double mean = (static_cast<double>(from) + static_cast<double>(end) - 1) / 2;
    for (; from < end; ++from) ranks[order[from]] = mean;
  }
  return ranks;
}

}  // namespace

double predicted(const MeasuredCase& row) {
  switch (row.quantity) {
    case Quantity::StepSeconds:
      return row.candidates.empty() ? step_seconds(row, row.setup) : best_of_candidates(row);
    case Quantity::BlockSeconds:
      return block_of(row);
    case Quantity::PeakBytes:
      return largest(estimate_memory(row.model, row.framework, row.setup));
    case Quantity::StateBytes: {  // of a rank in the middle, without embedding and head
      const double weights = planner::blocks_of(row.model, row.setup, row.setup.pipeline / 2) *
                             planner::block_parameters_of_rank(row.model, row.setup, kDenseBlock);
      return weights * (2 + row.framework.gradient_bytes + 12);
    }
    case Quantity::ActivationBytes:
      return estimate_memory(row.model, row.framework, row.setup).front().activations;
  }
  return 0;
}

Errors errors_of(const MeasuredTable& table) {
  Errors errors;
  double all = 0, held = 0;
  for (const MeasuredCase& row : table.cases) {
    const double signed_error = 100 * (predicted(row) / row.measured - 1);
    const double error = std::abs(signed_error);
    all += error;
    errors.bias += signed_error;
    if (row.quantity == Quantity::StepSeconds && !has_room(row)) ++errors.over_memory;
    errors.worst = std::max(errors.worst, error);
    ++errors.rows;
    if (row.fitted) {
      ++errors.fitted_rows;
    } else {
      held += error;
    }
  }
  errors.bias /= std::max(1, errors.rows);
  errors.all = all / std::max(1, errors.rows);
  errors.held_out = held / std::max(1, errors.rows - errors.fitted_rows);
  return errors;
}

FarRows split_by_error(const MeasuredTable& table, double percent) {
  FarRows rows;
  rows.far.title = rows.near.title = table.title;
  for (const MeasuredCase& row : table.cases) {
    const bool is_far = 100 * std::abs(predicted(row) / row.measured - 1) > percent;
    (is_far ? rows.far : rows.near).cases.push_back(row);
  }
  return rows;
}

Contradictions contradictions_of(const MeasuredTable& table) {
  const auto key = [](const MeasuredCase& row, int size) {
    const ParallelSetup& setup = row.setup;
    return std::vector<int>{row.model.hidden, row.model.blocks,    setup.tensor, setup.data,
                            setup.pipeline,   setup.micro_batches, size};
  };
  std::map<std::vector<int>, double> measured;
  for (const MeasuredCase& row : table.cases)
    measured[key(row, row.setup.micro_batch_size)] = row.measured;
  Contradictions found;
  for (const MeasuredCase& row : table.cases) {
    const auto twice = measured.find(key(row, 2 * row.setup.micro_batch_size));
    if (twice == measured.end()) continue;
    ++found.pairs;
    if (twice->second >= row.measured) continue;
    ++found.contradictory;
    found.worst_percent = std::max(found.worst_percent, 100 * (row.measured / twice->second - 1));
  }
  return found;
}

double rank_correlation_of(const MeasuredTable& table) {
  std::vector<double> said, seen;
  for (const MeasuredCase& row : table.cases) {
    said.push_back(predicted(row));
    seen.push_back(row.measured);
  }
  return rank_correlation(said, seen);
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double n = static_cast<double>(x.size());
  const double mean = (n - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

std::vector<Choice> choices_of(const MeasuredTable& table) {
  struct Best {
    const MeasuredCase *chosen = nullptr, *fastest = nullptr;
    double least = 0;
    int cases = 0;
  };
  std::map<std::string, Best> groups;
  for (const MeasuredCase& row : table.cases) {
    if (row.choice_group.empty()) continue;
    Best& best = groups[row.choice_group];
    const double seconds = predicted(row);
    if (best.chosen == nullptr || seconds < best.least) {
      best.chosen = &row;
      best.least = seconds;
    }
    if (best.fastest == nullptr || row.measured < best.fastest->measured) best.fastest = &row;
    ++best.cases;
  }
  std::vector<Choice> choices;
  for (const auto& [group, best] : groups) {
    choices.push_back({group, best.chosen->name, best.fastest->name,
                       100 * (best.chosen->measured / best.fastest->measured - 1), best.cases});
  }
  return choices;
}

namespace {

/// What tells a job from others, and one of its configurations from the others.
std::string job_of(const MeasuredCase& row) {
  const Architecture& model = row.model;
  const planner::ParallelSetup& setup = row.setup;
  std::ostringstream text;
  text << model.name << " h" << model.hidden << " l" << model.blocks << " a" << model.heads << " s"
       << model.sequence << " on " << setup.devices();
  for (const planner::NodeRates& node : row.machine.nodes) {
    const std::string name(node.device.name);
    if (text.str().find(name) == std::string::npos) text << ' ' << name;
  }
  text << ", batch " << setup.data * setup.micro_batch_size * setup.micro_batches;
  if (row.framework.product_bytes < 2)
    text << ", " << product_format(row.framework.product_bytes)->name;
  if (row.framework.gradient_bytes > 2) text << ", sums of 32 bits";
  return text.str();
}

std::string configuration_of(const MeasuredCase& row) {
  const planner::ParallelSetup& setup = row.setup;
  std::ostringstream text;
  text << "tp" << setup.tensor << " dp" << setup.data << " pp" << setup.pipeline << " mbs"
       << setup.micro_batch_size;
  const auto add = [&](const char* name, int value) {
    if (value > 1) text << ' ' << name << value;
  };
  add("vpp", setup.chunks);
  add("cp", setup.context);
  add("ep", setup.experts);
  add("zero", setup.zero);
  if (setup.sequence_parallel) text << " sp";
  if (setup.recompute.of_all == LayerRecompute::Whole) text << " recomputed";
  if (setup.recompute.of_all == LayerRecompute::Attention) text << " attention recomputed";
  return text.str();
}

/// Whether the planner tells a row from the one that it predicts fastest, by the rule of its
/// ranking (planner/search/step_intervals.cpp).
bool is_told(const LeftOutTable& table, std::size_t first, std::size_t other) {
  if (first == other || table.slopes.empty()) return false;
  const auto said = [&](std::size_t i) {
    return std::log(table.rows[i]->measured) + table.errors[i];
  };
  bool waits = false, is_mixture = false;
  for (const std::size_t i : {first, other}) {
    is_mixture = table.rows[i]->model.experts.count > 0;
    waits = waits || planner::waits_for_group(table.rows[i]->setup, is_mixture);
  }
  const double apart = expected_within(0, is_mixture, waits)
                           .deviation_between(table.slopes[first], table.slopes[other]);
  return said(other) - said(first) > planner::kDeviationsBelow90 * apart;
}

}  // namespace

std::vector<Choice> choices_of(const LeftOutTable& table) {
  struct Configuration {
    double measured = 0, predicted = 0;  // sums of its rows
    int rows = 0;
    std::size_t row = 0;  // one of them
  };
  std::map<std::string, std::map<std::string, Configuration>> jobs;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const MeasuredCase& row = *table.rows[i];
    if (row.quantity != Quantity::StepSeconds || !row.candidates.empty()) continue;
    Configuration& one = jobs[job_of(row)][configuration_of(row)];
    one.measured += row.measured;
    one.predicted += row.measured * std::exp(table.errors[i]);
    ++one.rows;
    one.row = i;
  }
  std::vector<Choice> choices;
  for (const auto& [job, configurations] : jobs) {
    if (configurations.size() < 3) continue;
    const auto least = [&](double Configuration::*of) {
      return *std::ranges::min_element(configurations, {}, [of](const auto& each) {
        return each.second.*of / each.second.rows;
      });
    };
    const auto chosen = least(&Configuration::predicted), best = least(&Configuration::measured);
    const double ratio =
        chosen.second.measured / chosen.second.rows / (best.second.measured / best.second.rows);
    choices.push_back({job, chosen.first, best.first, 100 * (ratio - 1),
                       static_cast<int>(configurations.size()),
                       is_told(table, chosen.second.row, best.second.row)});
  }
  return choices;
}

ChoiceShare share_of_choices(const std::vector<LeftOutTable>& tables, double percent) {
  ChoiceShare share;
  for (const LeftOutTable& table : tables) {
    for (const Choice& choice : choices_of(table)) {
      ++share.jobs;
      if (choice.cost_percent <= percent)
        ++share.within;
      else if (choice.is_told)
        ++share.told;
      share.worst = std::max(share.worst, choice.cost_percent);
    }
  }
  return share;
}

std::vector<MeasuredTable> measured_tables(const std::filesystem::path& folder) {
  return {vtrain_multi_node(folder),
          vtrain_single_node(folder),
          sequence_parallel_times(folder),
          sequence_parallel_memory(folder),
          b200_times(folder),
          b200_memory(folder),
          amp_homogeneous(folder),
          amp_mixed(folder),
          aceso_v100(folder),
          megatron_sc21(folder),
          megatron_core_h100(folder),
          megatron_tests(folder)};
}

}  // namespace pipewright::test
