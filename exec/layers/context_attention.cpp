#include "exec/layers/context_attention.hpp"

#include <utility>

#include "core/order/call.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

/// Queries in the order in which a single rank adds what they give to keys: one head of those that
/// share keys after the other, and of each the sequence. A turn's numbers are rows of a sample, of
/// the first such head, then of the second one and so on.
std::vector<ChainTurn> turns_of_queries(const ContextShape& shape) {
  std::vector<ChainTurn> turns;
  for (int head = 0; head < shape.own.queries_a_key(); ++head) {
    for (ChainTurn turn : turns_of_rows(1, shape.own.sequence, shape.place.parts)) {
      turn.own.begin += std::int64_t{head} * shape.own.sequence;
      turns.push_back(turn);
    }
  }
  return turns;
}

ContextQueries queries_of(const ContextShape& shape, const Range& turn) {
  return {.head = static_cast<int>(turn.begin / shape.own.sequence),
          .which = turn.begin % shape.own.sequence == 0 ? 0 : 1};
}

}  // namespace

ContextAttention::ContextAttention(const LayerSite& site, const AttentionShape& own)
    : ops_(*site.ops),
      group_(*site.context),
      shape_{own, site.context->place()},
      name_(as_call_name(site.path) + "-keys"),
      turns_(turns_of_queries(shape_)) {}

Task<Buffer> ContextAttention::gather_keys(const Buffer& qkv) const {
  Buffer keys = ops_.take(shape_.all_keys());
  const std::size_t own = static_cast<std::size_t>(group_.index()) * shape_.own_keys();
  ops_.context().copy_keys(shape_, qkv.floats(), keys.floats() + own);
  RowsOfMembers wanted{.what = name_,
                       .values = keys.floats(),
                       .rows = shape_.all_rows(),
                       .width = shape_.keys_width()};
  co_await group_.gathered(wanted);
  co_return keys;
}

void ContextAttention::forward(const Buffer& qkv, const Buffer& keys, float* probabilities,
                               float* context) const {
  ops_.context().context_attention_forward(shape_, qkv.floats(), keys.floats(), probabilities,
                                           context);
}

void ContextAttention::go_back(const Arrays& arrays, const ContextQueries& queries,
                               float* dkeys) const {
  ops_.context().context_attention_backward(shape_, queries, arrays.qkv.floats(),
                                            arrays.keys.floats(), arrays.probabilities.floats(),
                                            arrays.dcontext.floats(), arrays.dqkv.floats(), dkeys);
}

Task<void> ContextAttention::backward_input(Arrays arrays) const {
  const Buffer dkeys = ops_.take(shape_.all_keys());
  SumOfMembers sum{.what = name_,
                   .values = dkeys.floats(),
                   .rows = shape_.all_rows(),
                   .width = shape_.keys_width(),
                   .multiply =
                       [&](float* sums) {
                         ops_.clear(shape_.all_keys(), sums);
                         for (int head = 0; head < shape_.own.queries_a_key(); ++head) {
                           for (const int which : {0, 1}) go_back(arrays, {head, which}, sums);
                         }
                       },
                   .turns = turns_,
                   .go_on = [&](const Range& own,
                                float* sums) { go_back(arrays, queries_of(shape_, own), sums); },
                   .scatters = true};
  co_await group_.together(sum);
  const std::size_t own = static_cast<std::size_t>(group_.index()) * shape_.own_keys();
  ops_.context().take_key_gradients(shape_, dkeys.floats() + own, arrays.dqkv.floats());
}

ContextLatentAttention::ContextLatentAttention(const LayerSite& site, const LatentShape& own)
    : ops_(*site.ops),
      group_(*site.context),
      shape_{own, site.context->place()},
      name_(as_call_name(site.path) + "-keys"),
      turns_(turns_of_rows(1, own.sequence, site.context->size())) {}

Task<Buffer> ContextLatentAttention::gather_keys(const Buffer& keys_values,
                                                 const Buffer& rotary_key) const {
  Buffer keys = ops_.take(shape_.of_all(shape_.keys_width()));
  float* const own =
      keys.floats() + static_cast<std::size_t>(group_.index()) * shape_.of_own(shape_.keys_width());
  const std::size_t words = shape_.of_own(shape_.own.key_value_width());
  ops_.copy(words, keys_values.floats(), own);
  ops_.copy(shape_.of_own(shape_.own.widths.rotary), rotary_key.floats(), own + words);
  RowsOfMembers wanted{.what = name_,
                       .values = keys.floats(),
                       .rows = shape_.all_rows(),
                       .width = shape_.keys_width()};
  co_await group_.gathered(wanted);
  co_return keys;
}

void ContextLatentAttention::forward(const Buffer& queries, const Buffer& keys,
                                     float* probabilities, float* context) const {
  ops_.context().context_latent_forward(shape_, queries.floats(), keys.floats(), probabilities,
                                        context);
}

void ContextLatentAttention::go_back(const Arrays& arrays, int which, float* dkeys) const {
  ops_.context().context_latent_backward(shape_, which, arrays.queries.floats(),
                                         arrays.keys.floats(), arrays.probabilities.floats(),
                                         arrays.dcontext.floats(), arrays.dqueries.floats(), dkeys);
}

Task<void> ContextLatentAttention::backward_input(Arrays arrays) const {
  const std::size_t all = shape_.of_all(shape_.gradients_width());
  const Buffer dkeys = ops_.take(all);
  SumOfMembers sum{.what = name_,
                   .values = dkeys.floats(),
                   .rows = shape_.all_rows(),
                   .width = shape_.gradients_width(),
                   .multiply =
                       [&](float* sums) {
                         ops_.clear(all, sums);
                         for (const int which : {0, 1}) go_back(arrays, which, sums);
                       },
                   .turns = turns_,
                   .go_on = [&](const Range& own,
                                float* sums) { go_back(arrays, own.begin == 0 ? 0 : 1, sums); },
                   .scatters = true};
  co_await group_.together(sum);
  const float* const own = dkeys.floats() + static_cast<std::size_t>(group_.index()) *
                                                shape_.of_own(shape_.gradients_width());
  const std::size_t words = shape_.of_own(shape_.own.key_value_width());
  ops_.copy(words, own, arrays.dkeys_values.floats());
  ops_.copy(shape_.of_own(shape_.own.rotary_width()), own + words, arrays.drotary_keys.floats());
}

}  // namespace pipewright::exec
