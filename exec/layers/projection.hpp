// A weight matrix in -> out and its bias, as linear layers and the projections of attention use
// them; or this rank's part of them.
#pragma once

#include <string>
#include <vector>

#include "exec/layers/divided_rows.hpp"
#include "exec/layers/layer.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec {

/// How ranks divide a projection; without effect where the site has no TensorGroup.
struct Division {
  Split split = Split::Whole;
  std::vector<Range> columns = {};  // where it is split by them: ranges that are divided each
};

class Projection {
 public:
  /// The bias is null where there is none. Both live as long as it; they become this rank's part.
  Projection(const LayerSite& site, int in, int out, Parameter& weight, Parameter* bias,
             const Division& division);

  /// Of what this rank holds: numbers of a row that come in, and that go out.
  int in() const { return in_; }
  int out() const { return out_; }

  /// Of all rows of a micro-batch those that come in, and that go out: where ranks divide rows, x
  /// and dx of one that is split by columns, and y and dy of one that is split by rows, have this
  /// rank's own.
  int rows_in(int rows) const { return split_ == Split::Columns ? own(rows) : rows; }
  int rows_out(int rows) const { return split_ == Split::Rows ? own(rows) : rows; }

  /// `rows`: all. y[rows out][out]. Split by rows it pauses, and y is the sum over the ranks; it
  /// also pauses for the rows of others.
  Task<void> forward(int rows, const float* x, float* y) const;
  /// dx[rows in][in]. Split by columns it pauses, and dx is the sum over the ranks; it also pauses
  /// for the rows of others.
  Task<void> backward_input(int rows, const float* dy, float* dx) const;
  /// Pauses for the rows of others, which are not kept until now.
  Task<void> backward_weight(int rows, const float* x, const float* dy);
  /// The same, kept in the place of this rank's own rows of x or dy.
  Task<void> gather_kept_rows(int rows, Buffer& x, Buffer& dy) const;
  /// What these rows of x and dy give is added to Parameter::of_own_rows.
  void add_own_rows(const Range& rows, const float* x, const float* dy);

 private:
  int own(int rows) const { return static_cast<int>(rows_.own(rows).count); }
  Task<DividedRows::AllRows> all_of(Split split, const float* own, int rows, int width) const;
  /// Of what is brought together in front of it (split by columns), and behind it.
  std::string name_of(Split split) const;

  TensorOps& ops_;
  DividedRows rows_;
  int in_ = 0, out_ = 0;
  Parameter& weight_;
  Parameter* bias_;
  TensorGroup* tensor_ = nullptr;
  std::string path_;  // of the layer, as a name of calls
  Split split_ = Split::Whole;
  std::vector<ChainTurn> turns_;
};

}  // namespace pipewright::exec
