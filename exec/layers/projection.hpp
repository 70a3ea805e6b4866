// A weight matrix in -> out and its bias, as linear layers and the projections of attention use
// them; or this rank's part of them.
#pragma once

#include <vector>

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

  /// y[rows][out]. Split by rows it pauses, and y is the sum over the ranks.
  Task<void> forward(int rows, const float* x, float* y) const;
  /// dx[rows][in]. Split by columns it pauses, and dx is the sum over the ranks.
  Task<void> backward_input(int rows, const float* dy, float* dx) const;
  void backward_weight(int rows, const float* x, const float* dy);

 private:
  TensorOps& ops_;
  int in_ = 0, out_ = 0;
  Parameter& weight_;
  Parameter* bias_;
  TensorGroup* tensor_ = nullptr;
  std::string path_;  // of the layer, as a name of calls
  Split split_ = Split::Whole;
  std::vector<ChainTurn> turns_;
};

}  // namespace pipewright::exec
