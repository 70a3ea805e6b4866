// Attention, head by head: each head's products are canonical, so that its bits do not depend on
// which other heads and batches a process has.
#include <cmath>
#include <limits>

#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

/// Where tokens and heads stand among four dimensions, and the mask among the inputs.
struct Axes {
  std::size_t token, head, mask;
};
constexpr Axes kByTokens{.token = 1, .head = 2, .mask = 4};  // flash_attention
constexpr Axes kByHeads{.token = 2, .head = 1, .mask = 3};   // scaled_dot_product_attention

/// One head of one sample in an array of four dimensions: a matrix of tokens.
struct HeadOf {
  std::size_t first = 0;
  int stride = 0;

  HeadOf(const LocalArray& array, const Axes& axes, std::int64_t sample, std::int64_t head) {
    const spmd::Shape& shape = array.part.shape;
    const bool by_tokens = axes.token < axes.head;
    stride = small(by_tokens ? shape[axes.head] * shape[3] : shape[3]);
    first = sized(sample * elements(shape, 1, 4) +
                  head * (by_tokens ? shape[3] : shape[axes.token] * shape[3]));
  }
};

class Attention {
 public:
  Attention(const LocalCall& call, const Axes& axes)
      : call_(call), axes_(axes), q_(*call.inputs[0]), k_(*call.inputs[1]), v_(*call.inputs[2]) {
    queries_ = small(q_.part.shape[axes.token]);
    keys_ = small(k_.part.shape[axes.token]);
    width_ = small(q_.part.shape[3]);
    value_width_ = small(v_.part.shape[3]);
    scale_ = 1 / std::sqrt(static_cast<float>(width_));
    causal_ = operands_of(call).boolean("causal");
    mask_ = call.inputs[axes.mask];
  }

  /// Calls act(sample, head, head of keys) for each that this process has.
  template <class Act>
  void for_each_head(Act act) const {
    const std::int64_t heads = q_.part.shape[axes_.head], own = k_.part.shape[axes_.head];
    if (queries_ == 0 || keys_ == 0 || width_ == 0 || value_width_ == 0) return;
    for (std::int64_t sample = 0; sample < q_.part.shape[0]; ++sample) {
      for (std::int64_t head = 0; head < heads; ++head) act(sample, head, head * own / heads);
    }
  }

  void forward() const {
    std::vector<float> shares(sized(std::int64_t{queries_} * keys_));
    LocalArray &out = *call_.outputs[0], *sums = sums_of_exponentials();
    for_each_head([&](std::int64_t sample, std::int64_t head, std::int64_t key_head) {
      score(sample, head, key_head, shares);
      if (sums != nullptr) add_sums(sample, head, shares, *sums);
      for (int row = 0; row < queries_; ++row) take_shares(row_of(shares, row), keys_, 1);
      const HeadOf value(v_, axes_, sample, key_head), made(out, axes_, sample, head);
      cpu::gemm({queries_, value_width_, keys_}, 1, {shares.data(), keys_, false},
                {v_.values.data() + value.first, value.stride, false}, 0,
                out.values.data() + made.first, made.stride, Numerics::Exact);
    });
  }

  void backward() const {
    std::vector<float> shares(sized(std::int64_t{queries_} * keys_)), gradient = shares;
    for_each_head([&](std::int64_t sample, std::int64_t head, std::int64_t key_head) {
      score(sample, head, key_head, shares);
      for (int row = 0; row < queries_; ++row) take_shares(row_of(shares, row), keys_, 1);
      go_back(sample, head, key_head, shares, gradient);
    });
  }

 private:
  float* row_of(std::vector<float>& matrix, int row) const {
    return matrix.data() + sized(std::int64_t{row} * keys_);
  }

  /// Where the mask has this sample's and head's queries and keys. It may have fewer dimensions,
  /// and one element in each for all.
  std::size_t mask_place(std::int64_t sample, std::int64_t head, int query, int key) const {
    const spmd::LocalPart& mask = mask_->part;
    const std::size_t left_out = 4 - mask.shape.size();
    const std::int64_t index[] = {sample + q_.part.offset[0], head + q_.part.offset[axes_.head],
                                  query, key};
    std::size_t place = 0;
    for (std::size_t axis = 0; axis < mask.shape.size(); ++axis) {
      const std::int64_t own =
          mask.shape[axis] == 1 ? 0 : index[left_out + axis] - mask.offset[axis];
      place = place * sized(mask.shape[axis]) + sized(own);
    }
    return place;
  }

  /// Queries times keys, scaled and masked.
  void score(std::int64_t sample, std::int64_t head, std::int64_t key_head,
             std::vector<float>& scores) const {
    const HeadOf query(q_, axes_, sample, head), key(k_, axes_, sample, key_head);
    cpu::gemm(
        {queries_, keys_, width_}, scale_, {q_.values.data() + query.first, query.stride, false},
        {k_.values.data() + key.first, key.stride, true}, 0, scores.data(), keys_, Numerics::Exact);
    for (int row = 0; row < queries_; ++row) {
      float* own = row_of(scores, row);
      for (int column = 0; column < keys_; ++column) {
        if (mask_ != nullptr) own[column] += mask_->values[mask_place(sample, head, row, column)];
        if (causal_ && column > row + keys_ - queries_) {
          own[column] = -std::numeric_limits<float>::infinity();
        }
      }
    }
  }

  /// The logarithms of the sums of exponentials of flash_attention: [samples, heads, queries].
  LocalArray* sums_of_exponentials() const {
    return axes_.mask == kByTokens.mask ? output_of(call_, 2) : nullptr;
  }

  void add_sums(std::int64_t sample, std::int64_t head, std::vector<float>& scores,
                LocalArray& sums) const {
    const std::int64_t heads = q_.part.shape[axes_.head];
    for (int row = 0; row < queries_; ++row) {
      double sum = 0;
      for (int column = 0; column < keys_; ++column) {
        sum += std::exp(static_cast<double>(row_of(scores, row)[column]));
      }
      sums.values[sized((sample * heads + head) * queries_ + row)] =
          static_cast<float>(std::log(sum));
    }
  }

  /// With P the shares: dv += P' dout; dS = softmax'(dout v'); dq += dS k, dk += dS' q, scaled.
  void go_back(std::int64_t sample, std::int64_t head, std::int64_t key_head,
               const std::vector<float>& shares, std::vector<float>& gradient) const {
    const HeadOf query(q_, axes_, sample, head), key(k_, axes_, sample, key_head);
    const HeadOf value(v_, axes_, sample, key_head);
    const LocalArray& dout = *call_.of_outputs[0];
    const HeadOf given(dout, axes_, sample, head);
    const cpu::MatrixView of_out{dout.values.data() + given.first, given.stride, false};
    if (LocalArray* dv = call_.gradients[2]) {
      cpu::gemm({keys_, value_width_, queries_}, 1, {shares.data(), keys_, true}, of_out, 1,
                dv->values.data() + value.first, value.stride, Numerics::Exact);
    }
    cpu::gemm({queries_, keys_, value_width_}, 1, of_out,
              {v_.values.data() + value.first, value.stride, true}, 0, gradient.data(), keys_,
              Numerics::Exact);
    for (int row = 0; row < queries_; ++row) {
      const std::size_t first = sized(std::int64_t{row} * keys_);
      take_shares_back(shares.data() + first, gradient.data() + first, keys_, 1);
    }
    LocalArray* dmask = mask_ == nullptr ? nullptr : call_.gradients[axes_.mask];
    for (int row = 0; row < queries_; ++row) {
      for (int column = 0; column < keys_; ++column) {
        float& one = row_of(gradient, row)[column];
        if (dmask != nullptr) dmask->values[mask_place(sample, head, row, column)] += one;
        one *= scale_;
      }
    }
    if (LocalArray* dq = call_.gradients[0]) {
      cpu::gemm({queries_, width_, keys_}, 1, {gradient.data(), keys_, false},
                {k_.values.data() + key.first, key.stride, false}, 1,
                dq->values.data() + query.first, query.stride, Numerics::Exact);
    }
    if (LocalArray* dk = call_.gradients[1]) {
      cpu::gemm({keys_, width_, queries_}, 1, {gradient.data(), keys_, true},
                {q_.values.data() + query.first, query.stride, false}, 1,
                dk->values.data() + key.first, key.stride, Numerics::Exact);
    }
  }

  const LocalCall& call_;
  const Axes& axes_;
  const LocalArray &q_, &k_, &v_;
  const LocalArray* mask_ = nullptr;
  int queries_ = 0, keys_ = 0, width_ = 0, value_width_ = 0;
  float scale_ = 1;
  bool causal_ = false;
};

template <const Axes& axes>
LocalOperator attending(std::string_view rule, const char* (*refusal)(const spmd::OperatorGraph&,
                                                                      const spmd::GraphOperator&)) {
  return {.rule = rule,
          .forward = [](const LocalCall& call) { Attention(call, axes).forward(); },
          .backward = [](const LocalCall& call) { Attention(call, axes).backward(); },
          .differentiated = 0,
          .inputs = 3,
          .outputs = 1,
          .refusal = refusal};
}

const char* mask_refusal(const spmd::Operands& operands, std::size_t mask) {
  return operands.rank(mask) <= 4 ? nullptr : "with a mask of at most four dimensions";
}

const char* flash_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  const spmd::Operands operands = operands_of(graph, one);
  if (operands.number("dropout") != 0) return "without dropout";
  const auto outputs = tensors_of(one.outputs);
  if (outputs.size() > 1 && outputs[1]) return "without its shares as an output";
  return mask_refusal(operands, kByTokens.mask);
}

const char* by_heads_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  return mask_refusal(operands_of(graph, one), kByHeads.mask);
}

}  // namespace

std::vector<LocalOperator> attention_kernels() {
  return {attending<kByTokens>("flash_attention", flash_refusal),
          attending<kByHeads>("scaled_dot_product_attention", by_heads_refusal)};
}

}  // namespace pipewright::exec::graphs
