// The estimate on sources it never saw: what is fitted to measurements of training, fitted again on
// the other sources only, and the intervals that the errors there give.
#pragma once

#include <string>
#include <vector>

#include "tests/support/measured_cases.hpp"

namespace pipewright::test {

enum class LeaveOut { File, Publisher };

/// What a table's rows were predicted with: everything fitted without its file or publisher.
struct LeftOutTable {
  std::string title, file, publisher;
  std::vector<const MeasuredCase*> rows;
  std::vector<double> errors;      // ln(predicted / measured), by row
  std::vector<double> deviations;  // of these as the planner says it, by row
  double widened = 1;  // by which deviations have to grow for 90 % of the other sources' rows
  std::vector<std::string> unseen;  // devices of its rows that no other source has
};

/// Of a table's rows, within the 90 % interval of deviations that are so many times as wide.
double share_within(const LeftOutTable& table, double widened);

/// Tables of times, each left out in its turn. The cases of `tables` have to live as long.
std::vector<LeftOutTable> left_out(const std::vector<MeasuredTable>& tables, LeaveOut what);

}  // namespace pipewright::test
