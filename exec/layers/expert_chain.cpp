#include "exec/layers/expert_chain.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

/// In `buffers`: what all layers of the chain have in common, then each layer's own.
enum CommonSlot { kBegin, kFirstOwn };

std::size_t words_of(const Saved& saved, int width) {
  return static_cast<std::size_t>(saved.rows) * static_cast<std::size_t>(width);
}

int row_count(const Saved& saved) {
  return static_cast<int>(std::min<std::int64_t>(saved.rows, std::numeric_limits<int>::max()));
}

int members_of(const LayerSite& site) { return site.experts == nullptr ? 1 : site.experts->size(); }

std::vector<Parameter> expert_parameters(const Layer& layer, const LayerSite& site, int experts) {
  std::vector<Parameter> parameters;
  for (const Weight& weight : weights_of_experts(layer, site.width, experts)) {
    Parameter& made = parameters.emplace_back(declared(site, weight));
    if (site.experts == nullptr) continue;
    const int index = site.experts->index(), members = site.experts->size();
    divide_experts(made, rows_of(experts, weight.size / experts, index, members), site);
  }
  return parameters;
}

class ExpertLinear final : public PlainLeafLayer {
 public:
  ExpertLinear(const Layer& layer, const LayerSite& site, const ExpertChoice& choice)
      : PlainLeafLayer(site, expert_parameters(layer, site, choice.experts), kSlots),
        shape_{.taken = even_rows(choice, std::int64_t{extent_.samples} * extent_.sequence),
               .experts = choice.experts / members_of(site),
               .in = site.width,
               .out = layer.out,
               .members = members_of(site)},
        bias_(layer.bias ? &weights_[1] : nullptr) {}

 private:
  enum Slot { kX = kFirstOwn, kDy, kSlots };

  Buffer forward_now(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words_of(saved, shape_.out));
    ExpertOps& ops = ops_.experts();
    ops.expert_linear_forward(shape(saved), begin(saved), x.floats(), weights_[0].weights(),
                              y.floats());
    if (bias_ != nullptr)
      ops.expert_bias_forward(shape(saved), begin(saved), bias_->weights(), y.floats());
    saved.buffers[kX] = std::move(x);
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(words_of(saved, shape_.in));
      ops_.experts().expert_linear_backward_input(shape(saved), begin(saved), dy.floats(),
                                                  weights_[0].weights(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  /// What each member's rows give is a summand of its own, for it is another micro-batch's.
  void add_gradients(Saved& saved) override {
    ExpertOps& ops = ops_.experts();
    const float* const dy = saved.buffers[kDy].floats();
    for (int member = 0; member < shape_.members; ++member) {
      if (member > 0) end_summand();
      ops.expert_linear_backward_weight(shape(saved), member, begin(saved),
                                        saved.buffers[kX].floats(), dy, weights_[0].gradients());
      if (bias_ != nullptr)
        ops.expert_bias_backward_weight(shape(saved), member, begin(saved), dy, bias_->gradients());
    }
  }

  void end_summand() {
    for (Parameter& parameter : weights_) {
      if (parameter.next_summand) parameter.next_summand();
    }
  }
  ExpertLinearShape shape(const Saved& saved) const {
    ExpertLinearShape shape = shape_;
    shape.rows = row_count(saved);
    return shape;
  }
  static const std::int32_t* begin(const Saved& saved) { return saved.buffers[kBegin].ids(); }

  ExpertLinearShape shape_;
  Parameter* bias_;
};

/// Relu keeps its output, gelu and swiglu their input, until I.
class ExpertActivation final : public PlainLeafLayer {
 public:
  ExpertActivation(const Layer& layer, const LayerSite& site)
      : PlainLeafLayer(layer, site, kSlots),
        kind_(layer.kind),
        in_(site.width),
        out_(width_behind(layer, site.width, site.path)) {}

 private:
  enum Slot { kKept = kFirstOwn, kSlots };

  Buffer forward_now(Buffer x, Saved& saved) override {
    const std::size_t words = words_of(saved, out_);
    Buffer y = ops_.take(words);
    if (kind_ == LayerKind::Relu) ops_.relu_forward(words, x.floats(), y.floats());
    if (kind_ == LayerKind::Gelu) ops_.gelu_forward(words, x.floats(), y.floats());
    if (kind_ == LayerKind::Swiglu)
      ops_.llama().swiglu_forward(row_count(saved), out_, x.floats(), y.floats());
    saved.buffers[kKept] = kind_ == LayerKind::Relu ? y : std::move(x);
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) override {
    const Buffer kept = std::exchange(saved.buffers[kKept], Buffer());
    if (!wanted) return {};
    const std::size_t words = words_of(saved, in_);
    Buffer dx = dy.is_shared() || in_ != out_ ? ops_.take(words) : dy;
    if (kind_ == LayerKind::Relu)
      ops_.relu_backward_input(words, kept.floats(), dy.floats(), dx.floats());
    if (kind_ == LayerKind::Gelu)
      ops_.gelu_backward_input(words, kept.floats(), dy.floats(), dx.floats());
    if (kind_ == LayerKind::Swiglu)
      ops_.llama().swiglu_backward_input(row_count(saved), out_, kept.floats(), dy.floats(),
                                         dx.floats());
    return dx;
  }

  LayerKind kind_;
  int in_, out_;
};

}  // namespace

ExpertChain::ExpertChain(const Layer& mixture, LayerSite site) {
  const std::string outer = site.path + "/experts";
  for (int i = 0; i < static_cast<int>(mixture.inner.size()); ++i) {
    const Layer& inner = mixture.inner[static_cast<std::size_t>(i)];
    site.path = layer_path(outer, i, inner);
    if (inner.kind == LayerKind::Linear) {
      layers_.push_back(std::make_unique<ExpertLinear>(inner, site, mixture.choice));
    } else {
      layers_.push_back(std::make_unique<ExpertActivation>(inner, site));
    }
    site.width = width_behind(inner, site.width, site.path);
  }
}

void ExpertChain::take_runs(const Buffer& begin, std::int64_t rows, Saved& saved) const {
  for (Saved& of_layer : saved.inner) {
    of_layer.buffers[kBegin] = begin;
    of_layer.rows = rows;
  }
}

Task<Buffer> ExpertChain::forward(Buffer x, Saved& saved) {
  return forward_all(std::move(x), saved);
}

Task<Buffer> ExpertChain::backward_input(Buffer dy, Saved& saved, bool wanted) {
  return backward_input_all(std::move(dy), saved, wanted);
}

}  // namespace pipewright::exec
