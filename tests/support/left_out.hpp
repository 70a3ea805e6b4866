// The estimate on sources it never saw: what is fitted to measurements of training, fitted again on
// the other sources only, and the intervals that the errors there give.
#pragma once

#include <string>
#include <vector>

#include "planner/measured/scale_fit.hpp"
#include "tests/support/measured/cases.hpp"

namespace pipewright::test {

enum class LeaveOut { File, Publisher };

/// What a table's rows were predicted with: everything fitted without its file or publisher.
struct LeftOutTable {
  std::string title, file, publisher;
  std::vector<const MeasuredCase*> rows;
  std::vector<double> errors;                // ln(predicted / measured), by row
  std::vector<double> deviations;            // of these as the planner says it, by row
  std::vector<planner::ScaleVector> slopes;  // of their times, which the deviations follow, by row
  double widened = 1;  // by which deviations have to grow for 90 % of the other sources' rows
  std::vector<std::string> unseen;  // devices of its rows that no other source has
};

/// What the planner expects before anything is measured (deviations_of_sources()).
planner::ScaleFit expected_within(double all_times, bool is_mixture, bool waits);

/// Of a table's rows, within the interval that tune states, so many times as wide.
double share_within(const LeftOutTable& table, double widened);

/// How far all times of a machine with a kind of device may be off, of the logarithm.
struct KindDeviation {
  std::string kind;
  int sources = 0;
  double deviation = 0;   // by the means of sources' rows
  double of_sources = 0;  // by their medians, and no less than that of all kinds
  double weighed_by = 0;  // in the fit; what of_sources comes out as
};
/// What the sources that were left out say of it: the biases of a kind's sources, drawn to those of
/// all.
std::vector<KindDeviation> deviations_of_kinds(const std::vector<LeftOutTable>& tables);

/// For each job of a table's steps that three configurations or more were measured for, the first
/// choice. A job is a model, its devices and their number, a batch, a sequence and a number format;
/// a configuration is all else, and where it was repeated its mean counts.
std::vector<Choice> choices_of(const LeftOutTable& table);

/// Of all choices, those that cost at most `percent` more than the best; and the most that one did.
/// Of the others, those that the planner tells from the best.
struct ChoiceShare {
  int jobs = 0, within = 0, told = 0;
  double worst = 0;  // percent
};
ChoiceShare share_of_choices(const std::vector<LeftOutTable>& tables, double percent);

/// Tables of times, each left out in its turn. The cases of `tables` have to live as long.
std::vector<LeftOutTable> left_out(const std::vector<MeasuredTable>& tables, LeaveOut what);

}  // namespace pipewright::test
