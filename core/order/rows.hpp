// What is wrong with a whole row of a schedule CSV: one too many, one that was cut off, one that
// was broken in two. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/order/csv_lines.hpp"
#include "core/order/order.hpp"

namespace pipewright {

/// If whole rows explain what is wrong with the order: a sentence that begins with the place, such
/// as "order.csv, row 5: …", and says what to do. `rows` holds the line of each rank. Ask it of an
/// order with problems (core/order/problems.hpp) only; nullopt: no row stands out. O(actions).
std::optional<std::string> row_fault(const Order& order, const std::vector<CsvRow>& rows,
                                     const std::string& file);

/// The problems of an order that a text gave. Where one row of a CSV is to blame, it is the whole
/// complaint: what else is wrong follows from it. A fragment, and an order.json, have no such rows.
std::vector<std::string> explained_by_row(std::vector<std::string> problems, const Order& order,
                                          std::string_view text, const std::string& file);

}  // namespace pipewright
