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
  ops_.context().copy_keys(shape_, qkv.floats(), keys_of(group_.index(), keys.floats()));
  if (group_.is_ring()) {
    co_await gather_round_the_ring(keys.floats());
  } else {
    RowsOfMembers wanted{.what = name_,
                         .values = keys.floats(),
                         .rows = shape_.all_rows(),
                         .width = shape_.keys_width()};
    co_await group_.gathered(wanted);
  }
  co_return ops_.context().in_order(shape_, std::move(keys));
}

/// In an array of all ranks' keys where this one's begin.
float* ContextAttention::keys_of(int member, float* keys) const {
  return ops_.at(keys, static_cast<std::size_t>(member) * shape_.own_keys());
}

/// Every block stays: exact numerics add over the keys in the order of the sequence, in which they
/// come round on no rank.
Task<void> ContextAttention::gather_round_the_ring(float* keys) const {
  const float* sent = keys_of(group_.index(), keys);
  for (int hops = 1; hops < group_.size(); ++hops) {
    float* const arrived = keys_of(group_.place_after(hops).index, keys);
    RingOfMembers hop{.what = name_ + "-" + std::to_string(hops),
                      .arrays = {{sent, arrived}},
                      .rows = shape_.own.rows(),
                      .width = shape_.keys_width()};
    co_await group_.sent(hop);
    sent = arrived;
  }
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
  ops_.context().take_key_gradients(shape_, keys_of(group_.index(), dkeys.floats()),
                                    arrays.dqkv.floats());
}

RingAttention::RingAttention(const LayerSite& site, const AttentionShape& own)
    : ops_(*site.ops),
      group_(*site.context),
      shape_{own, site.context->place()},
      name_(as_call_name(site.path) + "-keys") {}

std::size_t RingAttention::log_sums() const {
  return words_of(shape_.own.rows(), shape_.own.heads);
}

Buffer RingAttention::own_keys(const Buffer& qkv) const {
  Buffer keys = ops_.take(shape_.own_keys());
  ops_.context().copy_keys(shape_, qkv.floats(), keys.floats());
  return keys;
}

RingOfMembers RingAttention::new_hop(const std::string& number) const {
  return {.what = name_ + "-" + number,
          .arrays = {},
          .rows = shape_.own.rows(),
          .width = shape_.keys_width(),
          .beside = true};
}

Task<void> RingAttention::forward(const Buffer& qkv, const Buffer& context,
                                  const Buffer& log_sums) const {
  const Buffer totals = ops_.take_floats(this->log_sums());
  const RingSums sums{context.floats(), log_sums.floats(), totals.floats()};
  Buffer keys = own_keys(qkv), next;
  for (int hops = 0; hops < group_.size(); ++hops) {
    const bool goes_on = hops + 1 < group_.size();
    RingOfMembers hop = new_hop(std::to_string(hops + 1));
    if (goes_on) {
      next = ops_.take(shape_.own_keys());
      hop.arrays = {{keys.floats(), next.floats()}};
      co_await group_.sent(hop);
    }
    ops_.context().ring_attention_forward(block(hops), qkv.floats(), keys.floats(), sums);
    if (goes_on) co_await group_.arrived();
    keys = std::move(next);
  }
  ops_.context().finish_ring_attention(shape_, sums);
}

/// A block's gradients follow it one hop behind: each rank adds its own to what has arrived, and
/// sends the sum on. What a rank's queries give to its own keys stays.
Task<void> RingAttention::backward_input(Arrays arrays) const {
  const std::size_t size = shape_.own_keys();
  const Buffer products = ops_.take_floats(log_sums()), home = ops_.take(size);
  ops_.context().context_products(shape_, arrays.context.floats(), arrays.dcontext.floats(),
                                  products.floats());
  const RingRows rows{arrays.log_sums.floats(), products.floats(), arrays.dcontext.floats()};
  Buffer keys = own_keys(arrays.qkv), next, sum, arriving, onward;
  for (int hops = 0; hops < group_.size(); ++hops) {
    RingOfMembers hop = new_hop(std::to_string(hops + 1));
    if (hops + 1 < group_.size()) {
      next = ops_.take(size);
      hop.arrays.push_back({keys.floats(), next.floats()});
    }
    if (hops >= 2) {
      arriving = ops_.take(size);
      hop.arrays.push_back({onward.floats(), arriving.floats()});
    }
    if (!hop.arrays.empty()) co_await group_.sent(hop);
    if (hops > 0) sum = ops_.take(size);
    const Buffer& given = hops == 0 ? home : sum;
    ops_.clear(size, given.floats());
    ops_.context().ring_attention_backward(block(hops), arrays.qkv.floats(), keys.floats(), rows,
                                           arrays.dqkv.floats(), given.floats());
    if (!hop.arrays.empty()) co_await group_.arrived();
    if (hops >= 2) ops_.add_to(size, arriving.floats(), sum.floats());
    onward = std::move(sum);
    arriving.reset();
    keys = std::move(next);
  }
  RingOfMembers last = new_hop("home");
  last.beside = false;
  arriving = ops_.take(size);
  last.arrays = {{onward.floats(), arriving.floats()}};
  co_await group_.sent(last);
  ops_.add_to(size, arriving.floats(), home.floats());
  const AttentionShape& own = shape_.own;
  ops_.copy_columns(own.rows(), shape_.keys_width(), home.floats(), shape_.keys_width(),
                    ops_.at(arrays.dqkv.floats(), static_cast<std::size_t>(own.width)),
                    own.qkv_width());
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
  float* const own = ops_.at(
      keys.floats(), static_cast<std::size_t>(group_.index()) * shape_.of_own(shape_.keys_width()));
  const std::size_t words = shape_.of_own(shape_.own.key_value_width());
  ops_.copy(words, keys_values.floats(), own);
  ops_.copy(shape_.of_own(shape_.own.widths.rotary), rotary_key.floats(), ops_.at(own, words));
  RowsOfMembers wanted{.what = name_,
                       .values = keys.floats(),
                       .rows = shape_.all_rows(),
                       .width = shape_.keys_width()};
  co_await group_.gathered(wanted);
  co_return ops_.context().in_order(shape_, std::move(keys));
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
  const float* const own = ops_.at(dkeys.floats(), static_cast<std::size_t>(group_.index()) *
                                                       shape_.of_own(shape_.gradients_width()));
  const std::size_t words = shape_.of_own(shape_.own.key_value_width());
  ops_.copy(words, own, arrays.dkeys_values.floats());
  ops_.copy(shape_.of_own(shape_.own.rotary_width()), ops_.at(own, words),
            arrays.drotary_keys.floats());
}

}  // namespace pipewright::exec
