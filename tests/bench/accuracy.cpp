// bench_accuracy: published measurements, golden/measured/ row by row and golden/measured2/ by
// file, next to what the analytical estimate predicts, as the page docs/evidence/accuracy.md.
//
//   bench_accuracy > docs/evidence/accuracy.md
//   bench_accuracy fit A100     the efficiencies that fit this device's named rows best
//   bench_accuracy short        the summary alone
//   bench_accuracy sources      each file's rows, error, bias and rows called over memory
//   bench_accuracy left-out     each file with all that is fitted fitted to the others
//   bench_accuracy rows FILE    the rows of a file
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "planner/search/step_intervals.hpp"
#include "tests/support/left_out.hpp"
#include "tests/support/measured/cases.hpp"
#include "tests/support/row_kinds.hpp"

namespace {

using namespace pipewright;
using test::MeasuredCase;
using test::MeasuredTable;

void print_value(const MeasuredCase& row, double value) {
  if (!is_time(row.quantity)) {
    std::printf("%.2f GiB", value / (1024.0 * 1024 * 1024));
  } else if (value < 10) {
    std::printf("%.1f ms", value * 1e3);
  } else {
    std::printf("%.2f s", value);
  }
}

void print_rows(const MeasuredTable& table) {
  std::printf("\n## %s\n\n`%s`: %s.\n\n", table.title.c_str(), table.file.c_str(),
              table.about.c_str());
  std::printf("| row | published | predicted | error |\n|---|---|---|---|\n");
  for (const MeasuredCase& row : table.cases) {
    const double value = predicted(row);
    std::printf("| %s%s | ", row.name.c_str(), row.fitted ? " (fitted)" : "");
    print_value(row, row.measured);
    std::printf(" | ");
    print_value(row, value);
    std::printf(" | %+.1f %% |\n", 100 * (value / row.measured - 1));
  }
}

void print_summary(const std::vector<MeasuredTable>& tables) {
  std::printf(
      "| table | rows (fitted) | mean error, all | held out | worst | rank correlation | target | "
      "a "
      "peer |\n|---|---|---|---|---|---|---|---|\n");
  for (const MeasuredTable& table : tables) {
    const test::Errors errors = test::errors_of(table);
    const double correlation = test::rank_correlation_of(table);
    std::printf("| %s | %d (%d) | %.2f %% | %.2f %% | %.1f %% | %.3f", table.title.c_str(),
                errors.rows, errors.fitted_rows, errors.all, errors.held_out, errors.worst,
                correlation);
    if (correlation < table.target_correlation) {
      std::printf(", aim %.2f not reached", table.target_correlation);
    }
    std::printf(" | ");
    if (table.target_percent > 0) {
      std::printf("%.0f %%%s", table.target_percent,
                  errors.all <= table.target_percent ? "" : ", not reached");
    }
    std::printf(" | %s |\n", table.peer.c_str());
  }
}

/// One line for each table of both collections, then what was left out of the second, and why.
void print_sources(const std::vector<MeasuredTable>& first,
                   const std::vector<MeasuredTable>& second,
                   const std::vector<MeasuredTable>& others) {
  std::printf(
      "| file | table | rows | mean error | bias | ran, called over memory |\n"
      "|---|---|---|---|---|---|\n");
  for (const auto* tables : {&first, &second}) {
    for (const MeasuredTable& table : *tables) {
      const test::Errors errors = test::errors_of(table);
      std::printf("| `%s` | %s | %d | %.1f %% | %+.1f %% | %d |\n", table.file.c_str(),
                  table.title.c_str(), errors.rows, errors.all, errors.bias, errors.over_memory);
    }
  }
  std::printf("\n| file | rows left out | why |\n|---|---|---|\n");
  for (const auto* tables : {&second, &others}) {
    for (const MeasuredTable& table : *tables) {
      for (const auto& [reason, rows] : table.left_out)
        std::printf("| `%s` | %d | %s |\n", table.file.c_str(), rows, reason.c_str());
    }
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct LogErrors {
  double mean = 0, median = 0, bias = 0;  // in percent
};

LogErrors summary_of(const std::vector<double>& errors) {
  LogErrors summary;
  std::vector<double> sizes;
  for (const double error : errors) {
    const double percent = 100 * std::expm1(error);
    summary.bias += percent / static_cast<double>(errors.size());
    sizes.push_back(std::abs(percent));
    summary.mean += sizes.back() / static_cast<double>(errors.size());
  }
  summary.median = median(std::move(sizes));
  return summary;
}

/// What all sources say together: rows, and sources each counted once.
void print_intervals(const std::vector<test::LeftOutTable>& tables) {
  double within = 0, others = 0, rows_within = 0;
  std::vector<double> widths, errors;
  for (const test::LeftOutTable& table : tables) {
    within += test::share_within(table, 1);
    others += test::share_within(table, table.widened);
    rows_within += test::share_within(table, 1) * static_cast<double>(table.rows.size());
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      widths.push_back(std::expm1(planner::kDeviationsOfSources * table.deviations[i]));
      errors.push_back(std::abs(std::expm1(table.errors[i])));
    }
  }
  const double tables_of_all = static_cast<double>(tables.size()),
               rows = static_cast<double>(widths.size());
  const double width = median(widths), error = median(errors);
  std::printf(
      "\n%.0f %% of all rows lie within the interval, of the rows of a source %.0f %% on average "
      "over the sources (%.0f %% with the others' widening); 85 to 95 %% are asked. The median "
      "interval reaches %.1f %% above, %.1f times the median error of %.1f %% (asked: 2.5).\n",
      100 * rows_within / rows, 100 * within / tables_of_all, 100 * others / tables_of_all,
      100 * width, width / error, 100 * error);
}

/// What planner::DeviceRates has of it (docs/decisions/0069-causes-of-recipes.md).
void print_deviations(const std::vector<test::LeftOutTable>& tables) {
  std::printf("\nHow far all times of a machine may be off, by the sources that were left out:");
  const char* before = " ";
  for (const test::KindDeviation& kind : test::deviations_of_kinds(tables)) {
    std::printf("%s%s %.2f, %.2f (%d)", before, kind.kind.c_str(), kind.deviation, kind.of_sources,
                kind.sources);
    before = "; ";
  }
  std::printf(
      ". Of the logarithm: by the means of a source's rows, for intervals; by their medians and no "
      "less than all kinds together, for the weights of the fit; with the number of "
      "sources.\n");
}

/// The same rows by kind of job, against what is asked.
void print_kinds(const std::vector<test::LeftOutTable>& tables) {
  std::printf(
      "\nBy kind of job, each file counted once; a row of several kinds counts in each "
      "([decision 61](../decisions/0061-kinds-of-job.md)).\n\n| kind of job | files | rows | mean "
      "error | bias | each row counted once | asked |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const test::RowKind& kind : test::row_kinds()) {
    const test::KindErrors errors = test::errors_of_kind(tables, kind);
    if (errors.rows == 0) continue;
    std::printf("| %s | %d | %d | %.1f %% | %+.1f %% | %.1f %% | ", kind.name.c_str(), errors.files,
                errors.rows, errors.mean, errors.bias, errors.mean_of_rows);
    if (kind.most_error == 0) {
      std::printf("nothing |\n");
      continue;
    }
    std::printf("%.0f %%", kind.most_error);
    if (kind.most_bias > 0) std::printf(", bias %.0f %%", kind.most_bias);
    const bool reached = errors.mean <= kind.most_error &&
                         (kind.most_bias == 0 || std::abs(errors.bias) <= kind.most_bias);
    std::printf("%s |\n", reached ? "" : ", not reached");
  }
}

/// What the first choice may cost more than the best, in percent: in most jobs, and in any.
constexpr double kMostOfChoice = 3, kMostOfAnyChoice = 15;

/// The first choice among the configurations measured for each job, each file without itself.
void print_left_out_choices(const std::vector<test::LeftOutTable>& tables) {
  const test::ChoiceShare all = test::share_of_choices(tables, kMostOfChoice);
  std::printf(
      "\nFirst choices: of %d jobs with three measured configurations or more %d, %.0f %%, cost at "
      "most %.0f %% more than the best measured (asked: 80 %%), the worst %.0f %% (asked: %.0f). "
      "Of "
      "the other %d `tune` would say of %d that it cannot tell the best from its choice.\n"
      "\n| file | jobs | within %.0f %% | worst | the job | chosen | best measured |\n"
      "|---|---|---|---|---|---|---|\n",
      all.jobs, all.within, 100.0 * all.within / all.jobs, kMostOfChoice, all.worst,
      kMostOfAnyChoice, all.jobs - all.within, all.jobs - all.within - all.told, kMostOfChoice);
  for (const test::LeftOutTable& table : tables) {
    const auto choices = test::choices_of(table);
    if (choices.empty()) continue;
    const test::Choice& worst = *std::ranges::max_element(choices, {}, &test::Choice::cost_percent);
    std::printf("| `%s` | %zu | %d | %.1f %% | %s | %s | %s |\n", table.file.c_str(),
                choices.size(), test::share_of_choices({table}, kMostOfChoice).within,
                worst.cost_percent, worst.group.c_str(), worst.chosen.c_str(), worst.best.c_str());
  }
}

void print_left_out(const std::vector<MeasuredTable>& first,
                    const std::vector<MeasuredTable>& second) {
  std::vector<MeasuredTable> tables = first;
  tables.insert(tables.end(), second.begin(), second.end());
  for (const test::LeaveOut what : {test::LeaveOut::File, test::LeaveOut::Publisher}) {
    const bool by_file = what == test::LeaveOut::File;
    std::printf(
        "\n| left out: %s | table | rows | mean error | median | bias | within 90 %% | widened | "
        "no other source has |\n|---|---|---|---|---|---|---|---|---|\n",
        by_file ? "its file" : "its publisher");
    const std::vector<test::LeftOutTable> results = test::left_out(tables, what);
    for (const test::LeftOutTable& table : results) {
      const LogErrors errors = summary_of(table.errors);
      std::string unseen;
      for (const std::string& name : table.unseen) unseen += (unseen.empty() ? "" : ", ") + name;
      std::printf("| %s | %s | %zu | %.1f %% | %.1f %% | %+.1f %% | %.0f %% | %.2f | %s |\n",
                  (by_file ? "`" + table.file + "`" : table.publisher).c_str(), table.title.c_str(),
                  table.rows.size(), errors.mean, errors.median, errors.bias,
                  100 * test::share_within(table, 1), table.widened, unseen.c_str());
    }
    print_intervals(results);
    if (by_file) print_deviations(results);
    print_kinds(results);
    if (by_file) print_left_out_choices(results);
  }
}

void print_choices(const std::vector<MeasuredTable>& tables) {
  std::printf("| job | rows | chosen | best measured | costs more |\n|---|---|---|---|---|\n");
  for (const MeasuredTable& table : tables) {
    for (const test::Choice& choice : test::choices_of(table)) {
      std::printf("| %s | %d | %s | %s | %.1f %%%s |\n", choice.group.c_str(), choice.cases,
                  choice.chosen.c_str(), choice.best.c_str(), choice.cost_percent,
                  choice.cost_percent > kMostOfChoice ? ", not reached" : "");
    }
  }
}

/// Off by more than this, in percent, and a row is looked at.
constexpr double kFar = 25;

/// What the tables themselves allow: the rows that are far off, what the others reach, and rows
/// that contradict one another.
void print_limits(const std::vector<MeasuredTable>& tables) {
  for (const MeasuredTable& table : tables) {
    if (table.limits.empty()) continue;
    const test::FarRows rows = test::split_by_error(table, kFar);
    std::printf("\n**%s.** %zu of %zu rows are off by more than %.0f %%", table.title.c_str(),
                rows.far.cases.size(), table.cases.size(), kFar);
    if (rows.far.cases.size() <= 5) {
      const char* before = ": ";
      for (const MeasuredCase& row : rows.far.cases) {
        std::printf("%s%s", before, row.name.c_str());
        before = "; ";
      }
    }
    std::printf(". The others: mean error %.2f %%, rank correlation %.3f.",
                test::errors_of(rows.near).all, test::rank_correlation_of(rows.near));
    const test::Contradictions found = test::contradictions_of(table);
    if (found.contradictory > 0) {
      std::printf(
          " Of %d pairs of rows that differ only in the samples of a micro-batch, in %d the one "
          "with twice the work took less, up to %.0f %%.",
          found.pairs, found.contradictory, found.worst_percent);
    }
    std::printf(" %s\n", table.limits.c_str());
  }
}

void print_page(const std::vector<MeasuredTable>& tables, const std::vector<MeasuredTable>& second,
                const std::vector<MeasuredTable>& others) {
  std::printf(
      "# How far the analytical estimate is from published measurements\n\n"
      "Made by `build/release/tests/bench/bench_accuracy > docs/evidence/accuracy.md`; do not "
      "edit. The model and its coefficients: [cost-model.md](../cost-model.md).\nPublished "
      "figures: "
      "golden/measured/, a part of the published rows each. Rows marked *fitted* are those that a "
      "device's two efficiencies were fitted to\n(`bench_accuracy fit A100`); *held out* leaves "
      "them out. A peer's figure marked as a claim is its authors'.\n\n");
  print_summary(tables);
  std::printf(
      "\n## The choice\n\nOf the configurations measured for one job: the one with the least "
      "predicted time, and how much longer it took than the best; the aim is 3 %%.\n\n");
  print_choices(tables);
  std::printf(
      "\n## True on other people's machines\n\nEach file of golden/measured/ and of a second "
      "collection, golden/measured2/, to which nothing was fitted.\n\n");
  print_sources(tables, second, others);
  std::printf(
      "\n## Sources that were left out\n\nTimes, with all that is fitted to training runs fitted "
      "to the other sources only ([decision 54](../decisions/0054-intervals-of-steps.md)): the "
      "error, and how many rows lie within the interval that `tune` states. Megatron's own tests "
      "are fitted to like a source, for the host's time, and are held to nothing ([decision "
      "73](../decisions/0073-host-time.md)).\n");
  print_left_out(tables, second);
  std::printf("\n## What the tables allow\n");
  print_limits(tables);
  for (const MeasuredTable& table : tables) print_rows(table);
}

/// The two efficiencies of a device that are fitted: of matrix products and of memory, or of links
/// where a device's are behind a PCI Express bus.
struct Efficiencies {
  double matmul = 0, second = 0;
};

void set(planner::NodeRates& node, const Efficiencies& values, bool links) {
  node.device.matmul_efficiency = values.matmul;
  if (!links) {
    node.device.memory_efficiency = values.second;
    return;
  }
  node.inside_bytes_per_second *= values.second / node.device.link_efficiency;
  node.device.link_efficiency = values.second;
}

/// A planner has to rank before it has to predict: what a whole lost rank correlation weighs, in
/// percent of mean error.
constexpr double kRankWeight = 20;

bool uses(const MeasuredCase& row, const char* device) {
  return std::ranges::any_of(row.machine.nodes, [&](const planner::NodeRates& node) {
    return node.device.name == device;
  });
}

/// Tables with rows that a device is to be fitted to, or else all tables.
bool has_fitted_rows(const std::vector<MeasuredTable>& tables, const char* device) {
  for (const MeasuredTable& table : tables) {
    for (const MeasuredCase& row : table.cases) {
      if (row.fitted && uses(row, device)) return true;
    }
  }
  return false;
}

/// Over the fitted rows with `device`, or all of them, for each table their mean error and what is
/// missing of the rank correlation.
double fit_error(std::vector<MeasuredTable>& tables, const char* device, const Efficiencies& values,
                 bool links, bool all_rows) {
  double sum = 0;
  for (MeasuredTable& table : tables) {
    double errors = 0;
    std::vector<double> said, seen;
    for (MeasuredCase& row : table.cases) {
      if ((!row.fitted && !all_rows) || !uses(row, device)) continue;
      for (planner::NodeRates& node : row.machine.nodes) {
        if (node.device.name == device) set(node, values, links);
      }
      said.push_back(predicted(row));
      seen.push_back(row.measured);
      errors += std::abs(said.back() / row.measured - 1);
    }
    if (said.empty()) continue;
    sum += 100 * errors / static_cast<double>(said.size());
    if (said.size() > 1) sum += kRankWeight * (1 - test::rank_correlation(said, seen));
  }
  return sum;
}

void fit(std::vector<MeasuredTable>& tables, const char* device) {
  const bool links = planner::device_rates(device).link_efficiency < 1;
  const bool all_rows = !has_fitted_rows(tables, device);
  double best = 1e9;
  Efficiencies found;
  for (int matmul = 20; matmul <= 100; ++matmul) {
    for (int second = links ? 20 : 40; second <= 95; second += links ? 2 : 5) {
      const Efficiencies values{matmul / 100.0, second / 100.0};
      const double error = fit_error(tables, device, values, links, all_rows);
      if (error >= best) continue;
      best = error;
      found = values;
    }
  }
  fit_error(tables, device, found, links, all_rows);
  std::printf("%s: matrix products %.2f, %s %.2f; the fitted rows are left with %.2f\n\n", device,
              found.matmul, links ? "links" : "memory", found.second, best);
}

/// Of products of 8 bits against 16, over all rows that have them, each table counted once.
void fit_eight_bits(std::vector<MeasuredTable>& tables, const char* device) {
  double best = 1e9, found = 0;
  for (int percent = 100; percent <= 220; percent += 2) {
    double sum = 0;
    for (MeasuredTable& table : tables) {
      double errors = 0;
      int rows = 0;
      for (MeasuredCase& row : table.cases) {
        if (row.framework.product_bytes == 2 || !uses(row, device)) continue;
        for (planner::NodeRates& node : row.machine.nodes)
          node.device.faster_in_8_bits = percent / 100.0;
        errors += std::abs(predicted(row) / row.measured - 1);
        ++rows;
      }
      if (rows > 0) sum += errors / rows;
    }
    if (sum == 0) return;
    if (sum >= best) continue;
    best = sum;
    found = percent / 100.0;
  }
  std::printf("%s: products of 8 bits %.2f times as fast as those of 16\n\n", device, found);
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path golden = PIPEWRIGHT_GOLDEN_DIR;
  const std::filesystem::path folder = golden / "measured";
  if (!std::filesystem::exists(folder)) {
    std::printf("golden/measured is not here; nothing to compare with\n");
    return 0;
  }
  auto tables = test::measured_tables(folder);
  if (argc == 3 && std::strcmp(argv[1], "fit") == 0) {
    const auto second = test::second_collection(golden / "measured2");
    tables.insert(tables.end(), second.begin(), second.end());
    fit(tables, argv[2]);
    fit_eight_bits(tables, argv[2]);
    print_summary(tables);
  } else if (argc == 2 && std::strcmp(argv[1], "short") == 0) {
    print_summary(tables);
    print_choices(tables);
  } else if (argc == 2 && std::strcmp(argv[1], "sources") == 0) {
    print_sources(tables, test::second_collection(golden / "measured2"),
                  test::files_without_cases(golden / "measured2"));
  } else if (argc == 2 && std::strcmp(argv[1], "left-out") == 0) {
    print_left_out(tables, test::second_collection(golden / "measured2"));
  } else if (argc == 3 && std::strcmp(argv[1], "rows") == 0) {
    for (const auto& all : {tables, test::second_collection(golden / "measured2")}) {
      for (const MeasuredTable& table : all) {
        if (table.file == argv[2]) print_rows(table);
      }
    }
  } else {
    print_page(tables, test::second_collection(golden / "measured2"),
               test::files_without_cases(golden / "measured2"));
  }
  return 0;
}
