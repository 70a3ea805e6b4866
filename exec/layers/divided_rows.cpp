#include "exec/layers/divided_rows.hpp"

#include <utility>

#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

DividedRows::DividedRows(const LayerSite& site)
    : ops_(*site.ops), tensor_(site.tensor), divides_(site.divides_rows) {}

Range DividedRows::own(int rows) const {
  return divides_ ? own_rows(rows, tensor_->index(), tensor_->size()) : Range{0, rows};
}

Task<DividedRows::AllRows> DividedRows::gather(std::string what, const float* own, int rows,
                                               int width) const {
  AllRows all;
  all.at = own;
  if (!divides_) co_return all;
  all.held = ops_.take(words_of(rows, width));
  all.at = all.held.floats();
  const Range part = this->own(rows);
  ops_.copy(words_of(part.count, width), own,
            ops_.at(all.held.floats(), words_of(part.begin, width)));
  RowsOfMembers wanted{
      .what = std::move(what), .values = all.held.floats(), .rows = rows, .width = width};
  co_await tensor_->gathered(wanted);
  co_return all;
}

Task<void> DividedRows::complete(std::string what, Buffer& kept, int rows, int width) const {
  AllRows all = co_await gather(std::move(what), kept.floats(), rows, width);
  if (all.held) kept = std::move(all.held);
}

Task<void> DividedRows::sum(SumOfMembers sum, float* own) const {
  Buffer all;
  if (divides_) all = ops_.take(sum.size());
  sum.values = divides_ ? all.floats() : own;
  sum.scatters = divides_;
  co_await tensor_->together(sum);
  if (divides_) keep_own(all.floats(), sum.rows, sum.width, own);
}

std::string DividedRows::call_name(const std::string& layer, const char* side) const {
  return divides_ ? layer + side : layer;
}

void DividedRows::keep_own(const float* all, int rows, int width, float* own) const {
  const Range part = this->own(rows);
  ops_.copy(words_of(part.count, width), ops_.at(all, words_of(part.begin, width)), own);
}

}  // namespace pipewright::exec
