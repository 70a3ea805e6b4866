#include "tests/support/row_kinds.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace pipewright::test {
namespace {

bool has_device(const MeasuredCase& row, std::string_view begins) {
  return std::ranges::any_of(row.machine.nodes, [&](const planner::NodeRates& node) {
    return node.device.name.starts_with(begins);
  });
}

bool is_mixture(const MeasuredCase& row) { return row.model.experts.count > 0; }
bool is_shared_out(const MeasuredCase& row) { return row.setup.zero >= 2; }
bool has_4_bits(const MeasuredCase& row) { return row.framework.product_bytes < 1; }
bool has_8_bits(const MeasuredCase& row) {
  return row.framework.product_bytes < 2 && !has_4_bits(row);
}
bool is_old(const MeasuredCase& row) { return has_device(row, "V100") || has_device(row, "T4"); }
bool adapts(const MeasuredCase& row) { return row.model.lora.is_used(); }
bool is_dense(const MeasuredCase& row) {
  return !adapts(row) && !is_mixture(row) && !is_shared_out(row) &&
         row.framework.product_bytes == 2 && !is_old(row);
}

bool is_dense_on_a100(const MeasuredCase& row) { return is_dense(row) && has_device(row, "A100"); }
bool is_dense_on_hopper(const MeasuredCase& row) { return is_dense(row) && has_device(row, "H"); }
bool is_dense_on_blackwell(const MeasuredCase& row) {
  return is_dense(row) && (has_device(row, "B") || has_device(row, "GB"));
}

}  // namespace

std::vector<RowKind> row_kinds() {
  return {{"dense, 16 bits, A100", 7, 3, is_dense_on_a100},
          {"dense, 16 bits, Hopper", 7, 3, is_dense_on_hopper},
          {"dense, 16 bits, Blackwell", 7, 3, is_dense_on_blackwell},
          {"mixtures of experts", 12, 0, is_mixture},
          {"ZeRO 2 and 3, FSDP", 12, 0, is_shared_out},
          {"products of 8 bits", 12, 0, has_8_bits},
          {"products of 4 bits", 0, 0, has_4_bits},
          {"V100 and T4", 15, 0, is_old},
          {"LoRA", 12, 0, adapts}};
}

KindErrors errors_of_kind(const std::vector<LeftOutTable>& tables, const RowKind& kind) {
  struct Sum {
    double mean = 0, bias = 0;
    int rows = 0;
  };
  std::map<std::string, Sum> by_file;
  for (const LeftOutTable& table : tables) {
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      if (!kind.has(*table.rows[i])) continue;
      Sum& sum = by_file[table.file];
      const double percent = 100 * std::expm1(table.errors[i]);
      sum.mean += std::abs(percent);
      sum.bias += percent;
      ++sum.rows;
    }
  }
  KindErrors errors;
  errors.files = static_cast<int>(by_file.size());
  for (const auto& [file, sum] : by_file) {
    errors.rows += sum.rows;
    errors.mean += sum.mean / sum.rows / errors.files;
    errors.bias += sum.bias / sum.rows / errors.files;
    errors.mean_of_rows += sum.mean;
  }
  errors.mean_of_rows /= std::max(1, errors.rows);
  return errors;
}

}  // namespace pipewright::test
