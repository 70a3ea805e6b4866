#include "exec/layers/expert_chain.hpp"

#include <memory>
#include <utility>

#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

int members_of(const LayerSite& site) { return site.experts == nullptr ? 1 : site.experts->size(); }

std::vector<Parameter> expert_parameters(const Layer& layer, const LayerSite& site, int experts) {
  std::vector<Parameter> parameters;
  for (const Weight& weight : weights_of_experts(layer, site.width, experts)) {
    Parameter& made = parameters.emplace_back(declared(site, weight));
    if (site.experts == nullptr) continue;
    const int index = site.experts->index(), members = site.experts->size();
    divide_experts(made, rows_of(experts, weight.size / experts, index, members));
  }
  return parameters;
}

class ExpertLinear final : public PlainLeafLayer {
 public:
  ExpertLinear(const Layer& layer, const LayerSite& site, const ExpertChoice& choice)
      : PlainLeafLayer(site, expert_parameters(layer, site, choice.experts), kSlots),
        shape_{.taken = even_rows(choice, std::int64_t{extent_.samples} * extent_.sequence,
                                  site.context_place().parts),
               .experts = choice.experts / members_of(site),
               .in = site.width,
               .out = layer.out,
               .members = members_of(site),
               .chunks = router_shape(site, choice).chunks()},
        bias_(layer.bias ? &weights_[1] : nullptr) {
    for (Parameter& weight : weights_) weight.summands = shape_.members;
  }

  enum Slot { kBegin, kX, kDy, kSlots };  // kBegin is there before F

 private:
  Buffer forward_now(Buffer x, Saved& saved) override {
    Buffer y = ops_.take(words(saved, shape_.out));
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
      dx = ops_.take(words(saved, shape_.in));
      ops_.experts().expert_linear_backward_input(shape(saved), begin(saved), dy.floats(),
                                                  weights_[0].weights(), dx.floats());
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  /// What each member's rows give is a summand of its own, for it is another micro-batch's.
  void add_gradients(Saved& saved) override {
    for (int member = 0; member < shape_.members; ++member) {
      if (member > 0) end_summand();
      add(saved, {member}, [](Parameter& parameter) { return parameter.gradients(); });
    }
  }
  void add_rows(Saved& saved, const Range& rows) override {
    const auto chunk = static_cast<int>(rows.begin / rows.count);
    for (int member = 0; member < shape_.members; ++member)
      add(saved, {member, chunk}, [member](Parameter& parameter) {
        return parameter.of_own_rows + member * parameter.start.size;
      });
  }

  /// What these runs give, to the array that a parameter has for it.
  template <class To>
  void add(const Saved& saved, const RunsOfMember& runs, To to) {
    ExpertOps& ops = ops_.experts();
    const float* const dy = saved.buffers[kDy].floats();
    ops.expert_linear_backward_weight(shape(saved), runs, begin(saved), saved.buffers[kX].floats(),
                                      dy, to(weights_[0]));
    if (bias_ != nullptr)
      ops.expert_bias_backward_weight(shape(saved), runs, begin(saved), dy, to(*bias_));
  }
  void end_summand() {
    for (Parameter& parameter : weights_) {
      if (parameter.next_summand) parameter.next_summand();
    }
  }
  ExpertLinearShape shape(const Saved& saved) const {
    ExpertLinearShape shape = shape_;
    shape.rows = rows(saved);
    return shape;
  }
  static const std::int32_t* begin(const Saved& saved) { return saved.buffers[kBegin].ids(); }

  ExpertLinearShape shape_;
  Parameter* bias_;
};

}  // namespace

RouterShape router_shape(const LayerSite& site, const ExpertChoice& choice) {
  return {site.extent.rows(), choice, site.context_place(), site.extent.samples};
}

ExpertChain::ExpertChain(const Layer& mixture, LayerSite site) {
  const std::string outer = site.path + "/experts";
  for (int i = 0; i < static_cast<int>(mixture.inner.size()); ++i) {
    const Layer& inner = mixture.inner[static_cast<std::size_t>(i)];
    site.path = layer_path(outer, i, inner);
    is_linear_.push_back(inner.kind == LayerKind::Linear);
    layers_.push_back(is_linear_.back()
                          ? std::make_unique<ExpertLinear>(inner, site, mixture.choice)
                          : make_layer(inner, site));
    site.width = width_after(inner, site.width, site.path);
  }
}

void ExpertChain::take_runs(const Buffer& begin, std::int64_t rows, Saved& saved) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    saved.inner[i].rows = rows;
    if (is_linear_[i]) saved.inner[i].buffers[ExpertLinear::kBegin] = begin;
  }
}

Task<Buffer> ExpertChain::forward(Buffer x, Saved& saved) {
  return forward_all(std::move(x), saved);
}

Task<Buffer> ExpertChain::backward_input(Buffer dy, Saved& saved, bool wanted) {
  return backward_input_all(std::move(dy), saved, wanted);
}

}  // namespace pipewright::exec
