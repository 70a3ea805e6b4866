#include "exec/layers/projection.hpp"

#include "core/order/call.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

Projection::Projection(const LayerSite& site, int in, int out, Parameter& weight, Parameter* bias,
                       const Division& division)
    : ops_(*site.ops), rows_(site), in_(in), out_(out), weight_(weight), bias_(bias) {
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
    const SumOfMembers sum{
        .what = rows_.call_name(path_, kOut),
        .rows = rows,
        .width = out_,
        .multiply = [&](float* all) { ops_.linear_forward(shape, x, weight_.weights(), all); },
        .turns = turns_,
        .go_on = [&](const Range&,
                     float* all) { ops_.linear_forward_on(shape, x, weight_.weights(), all); }};
    co_await rows_.sum(sum, y);
    if (bias_ != nullptr) ops_.bias_forward(rows_out(rows), out_, bias_->weights(), y);
    co_return;
  }
  const DividedRows::AllRows all = co_await all_of(Split::Columns, x, rows, in_);
  if (bias_ != nullptr)
    ops_.biased_linear_forward(shape, all.at, weight_.weights(), bias_->weights(), y);
  else
    ops_.linear_forward(shape, all.at, weight_.weights(), y);
}

Task<void> Projection::backward_input(int rows, const float* dy, float* dx) const {
  const LinearShape shape{rows, in_, out_};
  if (split_ != Split::Columns) {
    const DividedRows::AllRows all = co_await all_of(Split::Rows, dy, rows, out_);
    ops_.linear_backward_input(shape, all.at, weight_.weights(), dx);
    co_return;
  }
  const SumOfMembers sum{
      .what = rows_.call_name(path_, kIn),
      .rows = rows,
      .width = in_,
      .multiply =
          [&](float* all) { ops_.linear_backward_input(shape, dy, weight_.weights(), all); },
      .turns = turns_,
      .go_on =
          [&](const Range& own, float* all) {
            ops_.linear_backward_input_on(shape, own, dy, weight_.weights(), all);
          }};
  co_await rows_.sum(sum, dx);
}

Task<void> Projection::backward_weight(int rows, const float* x, const float* dy) {
  const DividedRows::AllRows all_x = co_await all_of(Split::Columns, x, rows, in_);
  const DividedRows::AllRows all_dy = co_await all_of(Split::Rows, dy, rows, out_);
  const LinearShape shape{rows, in_, out_};
  if (bias_ != nullptr)
    ops_.biased_linear_backward_weight(shape, all_x.at, all_dy.at, weight_.gradients(),
                                       bias_->gradients());
  else
    ops_.linear_backward_weight(shape, all_x.at, all_dy.at, weight_.gradients());
}

Task<void> Projection::gather_kept_rows(int rows, Buffer& x, Buffer& dy) const {
  if (split_ == Split::Columns) co_await rows_.complete(name_of(split_), x, rows, in_);
  if (split_ == Split::Rows) co_await rows_.complete(name_of(split_), dy, rows, out_);
}

void Projection::add_own_rows(const Range& rows, const float* x, const float* dy) {
  const int count = static_cast<int>(rows.count);
  x += words_of(rows.begin, in_);
  dy += words_of(rows.begin, out_);
  ops_.linear_backward_weight({count, in_, out_}, x, dy, weight_.of_own_rows);
  if (bias_ != nullptr) ops_.bias_backward_weight(count, out_, dy, bias_->of_own_rows);
}

/// All rows of an array of which a projection that is split so has this rank's alone.
Task<DividedRows::AllRows> Projection::all_of(Split split, const float* own, int rows,
                                              int width) const {
  if (split_ == split) co_return co_await rows_.gather(name_of(split), own, rows, width);
  co_return DividedRows::AllRows{own, {}};
}

std::string Projection::name_of(Split split) const {
  return rows_.call_name(path_, split == Split::Columns ? kIn : kOut);
}

}  // namespace pipewright::exec
