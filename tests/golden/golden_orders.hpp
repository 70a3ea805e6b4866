// Shared by the order tests: finding the golden data, and orders as lines of text.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright::golden {

inline std::filesystem::path golden_dir() { return PIPEWRIGHT_GOLDEN_DIR; }

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// One line a rank, so that a failure shows the rank; idle slots left out.
inline std::vector<std::string> rows_of(const Order& order) {
  std::vector<std::string> rows;
  for (const auto& cells : order.ranks) {
    std::string row;
    for (const Cell& cell : cells) {
      if (cell.action.kind == ActionKind::Idle) continue;
      row += (row.empty() ? "" : ",") + to_string(cell);
    }
    rows.push_back(row);
  }
  return rows;
}

inline std::vector<std::string> rows_of_file(const std::filesystem::path& path) {
  return rows_of(read_order_csv(text_of(path), path.filename().string()));
}

}  // namespace pipewright::golden

/// Skips by name where the golden data is not on this machine.
#define PIPEWRIGHT_NEEDS_GOLDEN(where)                                                 \
  if (!std::filesystem::exists(where)) {                                               \
    GTEST_SKIP() << "golden data not found: " << std::filesystem::path(where).string() \
                 << " (set PIPEWRIGHT_GOLDEN_DIR)";                                    \
  }                                                                                    \
  static_assert(true, "ends with a semicolon")
