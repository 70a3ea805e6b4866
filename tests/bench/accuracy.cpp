// bench_accuracy: every published measurement of golden/measured/ next to what the analytical
// estimate predicts, as the page docs/accuracy.md.
//
//   bench_accuracy > docs/accuracy.md
//   bench_accuracy fit A100     the efficiencies that fit this device's named rows best
//   bench_accuracy short        the summary alone
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tests/support/measured_cases.hpp"

namespace {

using namespace pipewright;
using test::MeasuredCase;
using test::MeasuredTable;
using test::Quantity;

bool is_bytes(Quantity quantity) {
  return quantity != Quantity::StepSeconds && quantity != Quantity::BlockSeconds;
}

void print_value(const MeasuredCase& row, double value) {
  if (is_bytes(row.quantity)) {
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

double rank_correlation_of(const MeasuredTable& table) {
  std::vector<double> said, seen;
  for (const MeasuredCase& row : table.cases) {
    said.push_back(predicted(row));
    seen.push_back(row.measured);
  }
  return test::rank_correlation(said, seen);
}

void print_summary(const std::vector<MeasuredTable>& tables) {
  std::printf(
      "| table | rows (fitted) | mean error, all | held out | worst | rank correlation | target | "
      "a "
      "peer |\n|---|---|---|---|---|---|---|---|\n");
  for (const MeasuredTable& table : tables) {
    const test::Errors errors = test::errors_of(table);
    std::printf("| %s | %d (%d) | %.2f %% | %.2f %% | %.1f %% | %.3f | ", table.title.c_str(),
                errors.rows, errors.fitted_rows, errors.all, errors.held_out, errors.worst,
                rank_correlation_of(table));
    if (table.target_percent > 0) {
      std::printf("%.0f %%%s", table.target_percent,
                  errors.all <= table.target_percent ? "" : ", not reached");
    }
    std::printf(" | %s |\n", table.peer.c_str());
  }
}

void print_choices(const std::vector<MeasuredTable>& tables) {
  std::printf("| job | rows | chosen | best measured | costs more |\n|---|---|---|---|---|\n");
  for (const MeasuredTable& table : tables) {
    for (const test::Choice& choice : test::choices_of(table)) {
      std::printf("| %s | %d | %s | %s | %.1f %% |\n", choice.group.c_str(), choice.cases,
                  choice.chosen.c_str(), choice.best.c_str(), choice.cost_percent);
    }
  }
}

void print_page(const std::vector<MeasuredTable>& tables) {
  std::printf(
      "# How far the analytical estimate is from published measurements\n\n"
      "Made by `build/release/tests/bench/bench_accuracy > docs/accuracy.md`; do not edit. The "
      "model and its coefficients: [cost-model.md](cost-model.md).\nPublished figures: "
      "golden/measured/, a part of the published rows each. Rows marked *fitted* are those that a "
      "device's two efficiencies were fitted to\n(`bench_accuracy fit A100`); *held out* leaves "
      "them out. A peer's figure marked as a claim is its authors'.\n\n");
  print_summary(tables);
  std::printf(
      "\n## The choice\n\nOf the configurations measured for one job: the one with the least "
      "predicted time, and how much longer it took than the best.\n\n");
  print_choices(tables);
  for (const MeasuredTable& table : tables) print_rows(table);
}

/// The rows of `device` that were fitted, one mean error for each table, their sum the smaller the
/// better.
double fit_error(std::vector<MeasuredTable>& tables, const char* device, double matmul,
                 double memory) {
  double sum = 0;
  for (MeasuredTable& table : tables) {
    double errors = 0;
    int rows = 0;
    for (MeasuredCase& row : table.cases) {
      bool uses = false;
      for (planner::NodeRates& node : row.machine.nodes) {
        if (node.device.name != device) continue;
        uses = true;
        node.device.matmul_efficiency = matmul;
        node.device.memory_efficiency = memory;
      }
      if (!row.fitted || !uses) continue;
      errors += std::abs(predicted(row) / row.measured - 1);
      ++rows;
    }
    if (rows > 0) sum += 100 * errors / rows;
  }
  return sum;
}

void fit(std::vector<MeasuredTable>& tables, const char* device) {
  double best = 1e9, best_matmul = 0, best_memory = 0;
  for (int matmul = 20; matmul <= 100; ++matmul) {
    for (int memory = 40; memory <= 100; memory += 5) {
      const double error = fit_error(tables, device, matmul / 100.0, memory / 100.0);
      if (error >= best) continue;
      best = error;
      best_matmul = matmul / 100.0;
      best_memory = memory / 100.0;
    }
  }
  fit_error(tables, device, best_matmul, best_memory);
  std::printf(
      "%s: matmul efficiency %.2f, memory efficiency %.2f; errors of the fitted tables add "
      "up to %.2f %%\n",
      device, best_matmul, best_memory, best);
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = std::filesystem::path(PIPEWRIGHT_GOLDEN_DIR) / "measured";
  if (!std::filesystem::exists(folder)) {
    std::printf("golden/measured is not here; nothing to compare with\n");
    return 0;
  }
  auto tables = test::measured_tables(folder);
  if (argc == 3 && std::strcmp(argv[1], "fit") == 0) {
    fit(tables, argv[2]);
    print_summary(tables);
  } else if (argc == 2 && std::strcmp(argv[1], "short") == 0) {
    print_summary(tables);
    print_choices(tables);
  } else {
    print_page(tables);
  }
  return 0;
}
