// What is wrong with a whole row of a schedule CSV: one too many, one that was cut off, one that
// was broken in two. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

/// The first line of a CSV that is only a part of an order.
inline constexpr std::string_view kFragmentLine = "# fragment";
bool is_fragment_csv(std::string_view text);

/// A line of a CSV that is a rank's row: it holds more than spaces and commas.
struct CsvRow {
  int number = 0;  // of the line, from 1
  std::string_view text;
};
/// In the order of the ranks. The views are into `text`.
std::vector<CsvRow> csv_rows(std::string_view text);

/// If whole rows explain what is wrong with the order: a sentence that begins with the place, such
/// as "order.csv, row 5: …", and says what to do. `rows` holds the line of each rank. Ask it of an
/// order with problems (core/order/problems.hpp) only; nullopt: no row stands out. O(actions).
std::optional<std::string> row_fault(const Order& order, const std::vector<CsvRow>& rows,
                                     const std::string& file);

}  // namespace pipewright
