#include "exec/layers/projection.hpp"

#include "core/order/call.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

Projection::Projection(const LayerSite& site, int in, int out, Parameter& weight, Parameter* bias,
                       const Division& division)
    : ops_(*site.ops), in_(in), out_(out), weight_(weight), bias_(bias) {
  if (site.tensor == nullptr || division.split == Split::Whole) return;
  tensor_ = site.tensor;
  path_ = as_call_name(site.path);
  split_ = division.split;
  const int index = tensor_->index(), members = tensor_->size();
  if (split_ == Split::Rows) {
    divide(weight_, rows_of(in, out, index, members));
    in_ = in / members;
    turns_ = turns_of({{0, in_}}, members);
    return;
  }
  const Slice part = columns_of(in, division.columns, index, members);
  divide(weight_, part);
  if (bias_ != nullptr) divide(*bias_, columns_of(1, division.columns, index, members));
  out_ = static_cast<int>(part.width());
  turns_ = turns_of(part.ranges, members);
}

Task<void> Projection::forward(int rows, const float* x, float* y) const {
  const LinearShape shape{rows, in_, out_};
  if (split_ == Split::Rows) {
    SumOfMembers sum{
        .what = path_,
        .values = y,
        .rows = rows,
        .width = out_,
        .multiply = [&] { ops_.linear_forward(shape, x, weight_.weights(), y); },
        .turns = turns_,
        .go_on = [&](const Range&) { ops_.linear_forward_on(shape, x, weight_.weights(), y); }};
    co_await tensor_->together(sum);
  } else {
    ops_.linear_forward(shape, x, weight_.weights(), y);
  }
  if (bias_ != nullptr) ops_.bias_forward(rows, out_, bias_->weights(), y);
}

Task<void> Projection::backward_input(int rows, const float* dy, float* dx) const {
  const LinearShape shape{rows, in_, out_};
  if (split_ != Split::Columns) {
    ops_.linear_backward_input(shape, dy, weight_.weights(), dx);
    co_return;
  }
  SumOfMembers sum{
      .what = path_,
      .values = dx,
      .rows = rows,
      .width = in_,
      .multiply = [&] { ops_.linear_backward_input(shape, dy, weight_.weights(), dx); },
      .turns = turns_,
      .go_on =
          [&](const Range& own) {
            ops_.linear_backward_input_on(shape, own, dy, weight_.weights(), dx);
          }};
  co_await tensor_->together(sum);
}

void Projection::backward_weight(int rows, const float* x, const float* dy) {
  ops_.linear_backward_weight({rows, in_, out_}, x, dy, weight_.gradients());
  if (bias_ != nullptr) ops_.bias_backward_weight(rows, out_, dy, bias_->gradients());
}

}  // namespace pipewright::exec
