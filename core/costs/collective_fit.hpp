// A CollectiveModel from measured all-reduces inside a node, and how well it says what it was not
// fitted to. Deterministic: no starting guess, no random numbers.
#pragma once

#include <vector>

#include "core/costs/collective_rows.hpp"

namespace pipewright {

/// The model with the least sum of squared relative errors over the rows inside one node, each of
/// its terms >= 0: linear least squares on both sides of every part of 2^k bytes as that from which
/// on the bulk protocol is taken. Rows between nodes are left aside. Throws InputError where the
/// rows do not tell the terms apart: fewer than two sizes of groups, no large sizes.
CollectiveModel fit_collectives(const MeasuredCollectives& measured);

/// |model / measured - 1| over some rows.
struct CollectiveErrors {
  int rows = 0;
  double mean = 0, worst = 0;
};
CollectiveErrors errors_of(const CollectiveModel& model,
                           const std::vector<MeasuredCollective>& rows);

/// A size of groups inside a node, and the errors on its rows of a model fitted to all others'.
struct LeftOutGroup {
  int members = 0;
  CollectiveModel model;
  CollectiveErrors errors;
};
/// Ascending by size. Empty where there are fewer than three sizes: two are needed for a fit.
std::vector<LeftOutGroup> leave_each_size_out(const MeasuredCollectives& measured);

}  // namespace pipewright
