#include "exec/layers/divided/divided_loss.hpp"

#include <utility>
#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
OwnLogits unknown_logits() {
  return {[](bool, float*) {}, [](bool, const float*, float*) {}};
}

Task<LogitSums> bring_logits_together(TensorOps& ops, TensorGroup& group, int rows, OwnLogits own) {
  const int members = group.size();
  const std::vector<ChainTurn> turns = turns_of({{0, 1}}, members);
  const auto count = static_cast<std::size_t>(rows);
  LogitSums all{ops.take_floats(count * static_cast<std::size_t>(members + 1)),
                ops.take_floats(count * kLossLanes)};
  SumOfMembers facts{.what = "loss.logits",
                     .values = all.facts.floats(),
                     .rows = rows,
                     .width = members + 1,
                     .multiply = [&](float* values) { own.tell(true, values); },
                     .turns = turns,
                     .go_on = [&](const Range&, float* values) { own.tell(false, values); },
                     .in_floats = true};
  co_await group.together(facts);
  SumOfMembers sums{
      .what = "loss.exponentials",
      .values = all.sums.floats(),
      .rows = rows,
      .width = kLossLanes,
      .multiply = [&](float* values) { own.add_exponentials(true, all.facts.floats(), values); },
      .turns = turns,
      .go_on = [&](const Range&,
                   float* values) { own.add_exponentials(false, all.facts.floats(), values); },
      .in_floats = true};
  co_await group.together(sums);
  co_return all;
}

Task<Buffer> bring_losses_together(TensorOps& ops, ContextGroup& group, int rows,
                                   std::function<void(float* at)> put_own) {
  constexpr int kFloats = sizeof(double) / sizeof(float);
  const int all_rows = rows * group.size();
  Buffer all = ops.take_floats(words_of(all_rows, kFloats));
  if (put_own) put_own(all.floats() + words_of(std::int64_t{group.index()} * rows, kFloats));
  RowsOfMembers wanted{.what = "loss.rows",
                       .values = all.floats(),
                       .rows = all_rows,
                       .width = kFloats,
                       .in_floats = true};
  co_await group.gathered(wanted);
  co_return all;
}

}  // namespace pipewright::exec
