#include "tests/support/left_out.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "planner/estimate/block_kernels.hpp"
#include "planner/measured/positive_definite.hpp"
#include "planner/measured/scale_fit.hpp"
#include "planner/search/step_intervals.hpp"
#include "tests/support/measured/rows.hpp"

namespace pipewright::test {
namespace {

// What is fitted: the logarithms of two efficiencies of each kind of device, of products and of
// memory (T4: of the links, which are behind a PCI Express bus), and of the host's time to start a
// kernel under two generations of frameworks, and in Megatron's own tests. Of devices of one
// process of manufacture the first is fitted for one, and the others reach what their power allows
// against it.
constexpr std::array kKinds{"T4", "V100", "A100", "Hopper", "Blackwell"};
constexpr std::size_t kOfDevices = 2 * kKinds.size(), kFitted = kOfDevices + 4;
constexpr std::size_t kEightBits = kFitted - 1;  // Hopper's products of 8 bits, against 16
using Values = std::array<double, kFitted>;

std::size_t kind_of(std::string_view device) {
  if (device == "T4") return 0;
  if (device == "V100") return 1;
  if (device.starts_with("A100")) return 2;
  return device.starts_with("H") ? 3 : 4;
}

/// What a device's products reach of its peak against the one of its process that is fitted.
double by_power(const planner::DeviceRates& device) {
  const std::size_t kind = kind_of(device.name);
  if (kind == 2 || kind == 3) return 1;
  const planner::DeviceRates fitted = planner::device_rates(kind == 4 ? "B200" : "V100");
  return device.joules_of_peak() / fitted.joules_of_peak();
}
/// T4 and V100 are of one process.
std::size_t products_of(std::size_t kind) { return kind == 0 ? 2 : 2 * kind; }

std::size_t launches_of(const FrameworkTraits& framework) {
  if (framework.name == megatron_core_in_tests().name) return kOfDevices + 2;
  return framework.flash_attention ? kOfDevices + 1 : kOfDevices;
}

// A priori: each value lies about the mean of its like, which is as little known itself.
constexpr double kDeviceDeviation = 0.25, kLaunchDeviation = 0.6;
constexpr double kMeanProducts = 0.7, kMeanMemory = 0.7, kMeanLaunch = 18e-6;
/// No source tells what a launch takes on average: known to a factor of e.
constexpr double kMeanLaunchDeviation = 1;
constexpr double kEightBitsDeviation = 0.15;
/// Of links without peer access: what goes from device to device goes into the host's memory and
/// out of it again.
constexpr double kMeanLinks = 0.5;
/// How far a source's rows with one kind of device may all be off for reasons of its own, as those
/// of sources that were left out are: of_sources of deviations_of_kinds(). Each source counts once.
constexpr std::array kSourceDeviations{0.06, 0.13, 0.06, 0.06, 0.06};
/// Errors beyond this count less and less (Student's t with one degree of freedom): 2.385 times the
/// 0.08 by which two rows of a job differ, as is usual (95 % of the efficiency of least squares
/// where errors are normal).
constexpr double kFarError = 0.19;
constexpr std::size_t kMostRowsOfSource = 48;
constexpr double kMostOfPeak = 0.95;
constexpr int kRounds = 10;
constexpr double kSlopeStep = 0.02;

std::string publisher_of(const std::string& file) {
  const auto begins = [&](const char* with) { return file.rfind(with, 0) == 0; };
  if (begins("vtrain")) return "vTrain";
  if (begins("amp")) return "AMP";
  if (begins("bigscience")) return "BigScience";
  if (begins("mosaic")) return "MosaicML";
  if (begins("simumax")) return "SimuMax";
  if (begins("aceso")) return "Aceso";
  return "NVIDIA";
}

bool has_links_of_its_own(std::size_t kind) { return kind == 0; }

MeasuredCase with_values(MeasuredCase row, const Values& values) {
  for (planner::NodeRates& node : row.machine.nodes) {
    const std::size_t kind = kind_of(node.device.name);
    const double second = std::exp(values[2 * kind + 1]);
    node.device.matmul_efficiency =
        std::min(kMostOfPeak, std::exp(values[products_of(kind)]) * by_power(node.device));
    if (has_links_of_its_own(kind)) {
      node.inside_bytes_per_second *= second / node.device.link_efficiency;
      node.device.link_efficiency = second;
    } else {
      node.device.memory_efficiency = second;
    }
  }
  for (planner::NodeRates& node : row.machine.nodes) {
    if (kind_of(node.device.name) == 3)
      node.device.faster_in_8_bits = 2 * std::exp(values[kEightBits]);
  }
  row.framework.launch_seconds = std::exp(values[launches_of(row.framework)]);
  return row;
}

double error_of(const MeasuredCase& row, const Values& values) {
  return std::log(predicted(with_values(row, values)) / row.measured);
}

/// Slopes of the logarithm of a row's time along those of the scales that measured steps change.
planner::ScaleVector slopes_of(const MeasuredCase& row, const Values& values) {
  const MeasuredCase fitted = with_values(row, values);
  const auto predict = [&](const planner::CostScales& scales) {
    MeasuredCase scaled = fitted;
    scaled.machine = planner::scaled(fitted.machine, scales);
    scaled.framework = planner::scaled(fitted.framework, scales);
    return std::vector<double>{predicted(scaled) * scales.time};
  };
  return planner::slopes_at({}, predict).front();
}

std::vector<std::size_t> values_of(const MeasuredCase& row) {
  std::set<std::size_t> used{launches_of(row.framework)};
  for (const planner::NodeRates& node : row.machine.nodes) {
    const std::size_t kind = kind_of(node.device.name);
    used.insert(products_of(kind));
    used.insert(2 * kind + 1);
    if (kind == 3 && row.framework.product_bytes < 2) used.insert(kEightBits);
  }
  return {used.begin(), used.end()};
}

struct Row {
  const MeasuredCase* row = nullptr;
  double weight = 0;     // a source's rows with one kind of device weigh 1 together
  double deviation = 0;  // of the source, with the kind of device that is known least
};

double source_deviation(const MeasuredCase& row) {
  double most = 0;
  for (const planner::NodeRates& node : row.machine.nodes)
    most = std::max(most, kSourceDeviations[kind_of(node.device.name)]);
  return most;
}

/// Those that others are fitted to. Runs of LoRA are judged alone: what adapters add no other row
/// has.
std::vector<Row> rows_of(const std::vector<const MeasuredTable*>& tables) {
  std::map<std::pair<std::string, std::size_t>, std::vector<const MeasuredCase*>> by_source;
  for (const MeasuredTable* table : tables) {
    for (const MeasuredCase& row : table->cases) {
      if (!is_time(row.quantity) || row.model.lora.is_used()) continue;
      by_source[{table->file, kind_of(row.machine.nodes.front().device.name)}].push_back(&row);
    }
  }
  std::vector<Row> rows;
  for (const auto& [source, all] : by_source) {
    const std::size_t count = std::min(all.size(), kMostRowsOfSource);
    for (std::size_t i = 0; i < count; ++i) {
      const MeasuredCase* row = all[i * all.size() / count];
      rows.push_back({row, 1.0 / static_cast<double>(count), source_deviation(*row)});
    }
  }
  return rows;
}

/// The means of products, memory and launches that the values are drawn to.
struct Means {
  std::array<double, 3> of{};
};

std::size_t like_of(std::size_t value) { return value >= kOfDevices ? 2 : value % 2; }

bool has_own_prior(std::size_t value) {
  return value == kEightBits ||
         (value < kOfDevices && value % 2 == 1 && has_links_of_its_own(value / 2));
}

double prior_mean(std::size_t value, const Means& means) {
  if (value == kEightBits) return 0;  // as the data sheet
  return has_own_prior(value) ? std::log(kMeanLinks) : means.of[like_of(value)];
}

double prior_deviation(std::size_t value) {
  if (value == kEightBits) return kEightBitsDeviation;
  return value >= kOfDevices || has_own_prior(value) ? kLaunchDeviation : kDeviceDeviation;
}

/// The posterior mean of what values of one kind have in common.
Means means_of(const Values& values, const std::set<std::size_t>& known) {
  const std::array prior{std::log(kMeanProducts), std::log(kMeanMemory), std::log(kMeanLaunch)};
  Means means;
  for (std::size_t like = 0; like < prior.size(); ++like) {
    const double of_mean = like == 2 ? kMeanLaunchDeviation : kDeviceDeviation;
    double weight = 1 / (of_mean * of_mean), sum = weight * prior[like];
    for (const std::size_t value : known) {
      if (like_of(value) != like || has_own_prior(value)) continue;
      const double own = 1 / (prior_deviation(value) * prior_deviation(value));
      weight += own;
      sum += own * values[value];
    }
    means.of[like] = sum / weight;
  }
  return means;
}

/// One step of Gauss and Newton.
Values stepped(const std::vector<Row>& rows, const Values& values, const Means& means) {
  planner::SquareMatrix<kFitted> matrix{};
  Values right{};
  for (std::size_t i = 0; i < kFitted; ++i) {
    const double weight = 1 / (prior_deviation(i) * prior_deviation(i));
    matrix[i][i] = weight;
    right[i] = weight * (prior_mean(i, means) - values[i]);
  }
  for (const Row& each : rows) {
    const double error = error_of(*each.row, values);
    const double far = error / kFarError;
    const double weight = each.weight / (each.deviation * each.deviation) / (1 + far * far);
    const std::vector<std::size_t> used = values_of(*each.row);
    Values slopes{};
    for (const std::size_t i : used) {
      Values moved = values;
      moved[i] += kSlopeStep;
      slopes[i] = (error_of(*each.row, moved) - error) / kSlopeStep;
    }
    for (const std::size_t i : used) {
      right[i] -= weight * slopes[i] * error;
      for (const std::size_t j : used) matrix[i][j] += weight * slopes[i] * slopes[j];
    }
  }
  const planner::SquareMatrix<kFitted> covariance = planner::inverse(matrix);
  Values step{};
  for (std::size_t i = 0; i < kFitted; ++i) {
    for (std::size_t j = 0; j < kFitted; ++j) step[i] += covariance[i][j] * right[j];
  }
  return step;
}

Values fitted_to(const std::vector<Row>& rows) {
  std::set<std::size_t> known;
  for (const Row& each : rows) {
    for (const std::size_t value : values_of(*each.row)) known.insert(value);
  }
  Means means = means_of({}, {});
  Values values{};
  for (std::size_t i = 0; i < kFitted; ++i) values[i] = prior_mean(i, means);
  for (int round = 0; round < kRounds; ++round) {
    const Values step = stepped(rows, values, means);
    for (std::size_t i = 0; i < kFitted; ++i) {
      values[i] += std::clamp(step[i], -0.3, 0.3);
      if (i < kOfDevices) values[i] = std::min(values[i], std::log(kMostOfPeak));
    }
    means = means_of(values, known);
  }
  return values;
}

/// What a source's rows with one kind of device were off by.
struct Bias {
  std::string file;
  std::size_t kind = 0;
  double mean = 0, median = 0;
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t rows = values.size();
  return (values[(rows - 1) / 2] + values[rows / 2]) / 2;
}

std::vector<Bias> biases_of(const std::vector<LeftOutTable>& tables) {
  std::map<std::pair<std::string, std::size_t>, std::vector<double>> errors;
  for (const LeftOutTable& table : tables) {
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const std::string_view device = table.rows[i]->machine.nodes.front().device.name;
      errors[{table.file, kind_of(device)}].push_back(table.errors[i]);
    }
  }
  std::vector<Bias> biases;
  for (const auto& [of, all] : errors) {
    const double sum = std::accumulate(all.begin(), all.end(), 0.0);
    biases.push_back({of.first, of.second, sum / static_cast<double>(all.size()), median_of(all)});
  }
  return biases;
}

/// As many sources as all kinds together count for, beside a kind's own.
constexpr double kSourcesOfPrior = 2;
/// The standard deviation of normal values, over the mean of their sizes: the mean is less at the
/// mercy of one source that is far off than a sum of squares.
constexpr double kDeviationOverMeanSize = 1.2533;

double deviation_of_all(const std::vector<Bias>& biases, double Bias::*of) {
  double sum = 0;
  for (const Bias& bias : biases) sum += std::abs(bias.*of);
  return kDeviationOverMeanSize * sum / static_cast<double>(biases.size());
}

/// … over the median of their sizes: what is usual among kinds, whatever a kind of which nothing
/// certain is known (V100) is off by.
constexpr double kDeviationOverMedianSize = 1.4826;

double usual_deviation(const std::vector<Bias>& biases, double Bias::*of) {
  std::vector<double> sizes;
  for (const Bias& bias : biases) sizes.push_back(std::abs(bias.*of));
  return kDeviationOverMedianSize * median_of(std::move(sizes));
}

/// The deviation of a kind's biases, drawn to `all`.
double deviation_of_kind(const std::vector<Bias>& biases, std::size_t kind, double Bias::*of,
                         double all) {
  std::vector<Bias> own;
  for (const Bias& bias : biases)
    if (bias.kind == kind) own.push_back(bias);
  if (own.empty()) return all;
  const double sources = static_cast<double>(own.size());
  return (kSourcesOfPrior * all + sources * deviation_of_all(own, of)) /
         (kSourcesOfPrior + sources);
}

/// Within which 90 % of the rows of the tables of other keys lie, each source counted once, in
/// units of planner::kDeviationsOfSources deviations.
template <class Key>
double widened_by_others(const std::vector<LeftOutTable>& tables, const LeftOutTable& table,
                         const Key& key) {
  std::vector<std::pair<double, double>> sizes;  // with their weights
  double all = 0;
  for (const LeftOutTable& other : tables) {
    if (key(other.file) == key(table.file)) continue;
    for (std::size_t i = 0; i < other.rows.size(); ++i)
      sizes.emplace_back(std::abs(other.errors[i]) / other.deviations[i],
                         1.0 / static_cast<double>(other.rows.size()));
    all += 1;
  }
  std::sort(sizes.begin(), sizes.end());
  double sum = 0;
  for (const auto& [size, weight] : sizes) {
    sum += weight;
    if (sum >= 0.9 * all) return size / planner::kDeviationsOfSources;
  }
  return 1;
}

}  // namespace

planner::ScaleFit expected_within(double all_times, bool is_mixture, bool waits) {
  planner::ScaleFit fit =
      planner::fit_scales({}, [](const planner::CostScales&) { return std::vector<double>{}; });
  fit.expect_within(planner::deviations_of_sources(all_times, is_mixture, waits));
  return fit;
}

double share_within(const LeftOutTable& table, double widened) {
  int within = 0;
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    within +=
        std::abs(table.errors[i]) <= planner::kDeviationsOfSources * widened * table.deviations[i];
  return static_cast<double>(within) / static_cast<double>(table.rows.size());
}

std::vector<LeftOutTable> left_out(const std::vector<MeasuredTable>& tables, LeaveOut what) {
  const auto key = [&](const std::string& file) {
    return what == LeaveOut::File ? file : publisher_of(file);
  };
  std::map<std::string, Values> without;
  std::map<std::string, std::set<std::size_t>> seen;
  std::vector<LeftOutTable> results;
  for (const MeasuredTable& table : tables) {
    LeftOutTable result{table.title, table.file, publisher_of(table.file), {}, {}, {}, {}, 1, {}};
    for (const MeasuredCase& row : table.cases)
      if (is_time(row.quantity)) result.rows.push_back(&row);
    if (result.rows.empty() || table.calibrates) continue;
    const std::string out = key(table.file);
    if (without.count(out) == 0) {
      std::vector<const MeasuredTable*> others;
      for (const MeasuredTable& other : tables)
        if (key(other.file) != out) others.push_back(&other);
      const std::vector<Row> rows = rows_of(others);
      without[out] = fitted_to(rows);
      for (const Row& each : rows)
        for (const std::size_t value : values_of(*each.row)) seen[out].insert(value);
    }
    std::set<std::string> unseen;
    for (const MeasuredCase* row : result.rows) {
      result.errors.push_back(error_of(*row, without[out]));
      for (const planner::NodeRates& node : row->machine.nodes) {
        const std::size_t kind = kind_of(node.device.name);
        if (seen[out].count(2 * kind + 1) == 0) unseen.insert(kKinds[kind]);
      }
    }
    result.unseen.assign(unseen.begin(), unseen.end());
    results.push_back(std::move(result));
  }
  const std::vector<Bias> biases = biases_of(results);
  for (LeftOutTable& result : results) {
    std::vector<Bias> others;
    for (const Bias& bias : biases)
      if (key(bias.file) != key(result.file)) others.push_back(bias);
    const double usual = usual_deviation(others, &Bias::mean);
    for (const MeasuredCase* row : result.rows) {
      double of_times = 0;
      for (const planner::NodeRates& node : row->machine.nodes)
        of_times = std::max(
            of_times, deviation_of_kind(others, kind_of(node.device.name), &Bias::mean, usual));
      const bool is_mixture = row->model.experts.count > 0;
      const bool waits = planner::waits_for_group(row->setup, is_mixture);
      result.slopes.push_back(slopes_of(*row, without[key(result.file)]));
      result.deviations.push_back(
          expected_within(of_times, is_mixture, waits).deviation(result.slopes.back()));
    }
  }
  for (LeftOutTable& result : results) result.widened = widened_by_others(results, result, key);
  return results;
}

std::vector<KindDeviation> deviations_of_kinds(const std::vector<LeftOutTable>& tables) {
  const std::vector<Bias> biases = biases_of(tables);
  const double usual = usual_deviation(biases, &Bias::mean),
               all = deviation_of_all(biases, &Bias::median);
  std::vector<KindDeviation> kinds;
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    const auto sources = std::ranges::count(biases, kind, &Bias::kind);
    kinds.push_back({kKinds[kind], static_cast<int>(sources),
                     deviation_of_kind(biases, kind, &Bias::mean, usual),
                     std::max(all, deviation_of_kind(biases, kind, &Bias::median, all)),
                     kSourceDeviations[kind]});
  }
  return kinds;
}

}  // namespace pipewright::test
