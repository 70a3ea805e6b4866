#include "exec/layers/expert_chain.hpp"

#include <memory>
#include <utility>

#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

int members_of(const LayerSite& site) { return site.experts == nullptr ? 1 : site.experts->size(); }

/// Experts that differ along cp, too, get all rows of a micro-batch.
bool adds_experts_in_turns(const LayerSite& site) {
  return site.adds_rows_in_turns &&
         (site.experts == nullptr || !site.experts->differs_along_context());
}
LayerSite site_of_experts(LayerSite site) {
  site.adds_rows_in_turns = adds_experts_in_turns(site);
  return site;
}

/// Of the members whose rows are one micro-batch's, the runs in the order of its rows, for whom
/// that matters; else member by member.
std::vector<RunsOfMember> runs_of_micro_batch(const LayerSite& site, const RowParts& rows) {
  std::vector<RunsOfMember> runs;
  if (site.adds_rows_in_turns && !adds_experts_in_turns(site)) {
    for_each_stretch(rows, [&](int member, int stretch) { runs.push_back({member, stretch}); });
    return runs;
  }
  const int members = site.experts == nullptr ? 1 : site.experts->members_of_micro_batch();
  for (int member = 0; member < members; ++member) runs.push_back({member});
  return runs;
}

std::vector<Parameter> expert_parameters(const Layer& layer, const LayerSite& site, int experts) {
  std::vector<Parameter> parameters;
  for (const Weight& weight : weights_of_experts(layer, site.width, experts)) {
    Parameter& made = parameters.emplace_back(declared(site, weight));
    if (site.experts == nullptr) continue;
    const int index = site.experts->index(), members = site.experts->size();
    divide_experts(made, rows_of(experts, weight.size / experts, index, members), *site.experts);
  }
  return parameters;
}

class ExpertLinear final : public PlainLeafLayer {
 public:
  ExpertLinear(const Layer& layer, const LayerSite& site, const ExpertChoice& choice)
      : PlainLeafLayer(site_of_experts(site), expert_parameters(layer, site, choice.experts),
                       kSlots),
        parts_(site.row_parts()),
        shape_{.taken = even_rows(choice, parts_.rows(), parts_.parts()),
               .experts = choice.experts / members_of(site),
               .in = site.width,
               .out = layer.out,
               .members = members_of(site),
               .chunks = parts_.stretches()},
        micro_batches_(site.experts == nullptr ? 1 : site.experts->micro_batches()),
        runs_(runs_of_micro_batch(site, parts_)),
        bias_(layer.bias ? &weights_[1] : nullptr) {
    for (Parameter& weight : weights_) weight.summands = micro_batches_;
  }

  enum Slot { kX, kDy, kSlots };  // Saved::begins is there before F

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

  /// What the rows of each micro-batch give is a summand of its own.
  void add_gradients(Saved& saved) override {
    for (int m = 0; m < micro_batches_; ++m) {
      if (m > 0) end_summand();
      for (const RunsOfMember& runs : runs_)
        add(saved, {first_member(m) + runs.member, runs.chunk},
            [](Parameter& parameter) { return parameter.gradients(); });
    }
  }
  void add_rows(Saved& saved, const Range& rows) override {
    for (int m = 0; m < micro_batches_; ++m) {
      for_each_stretch_of(parts_, rows.begin, rows.begin + rows.count, [&](int member, int chunk) {
        add(saved, {first_member(m) + member, chunk},
            [m](Parameter& parameter) { return parameter.of_own_rows + m * parameter.start.size; });
      });
    }
  }
  int first_member(int micro_batch) const {
    return micro_batch * (shape_.members / micro_batches_);
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
  static const std::int32_t* begin(const Saved& saved) { return saved.begins->data(); }

  const RowParts parts_;
  const ExpertLinearShape shape_;
  const int micro_batches_;               // whose rows come
  const std::vector<RunsOfMember> runs_;  // of each, in the order in which they are added
  Parameter* const bias_;
};

}  // namespace

RouterShape router_shape(const LayerSite& site, const ExpertChoice& choice) {
  return {site.own_extent().rows(), choice, site.row_parts()};
}

ExpertChain::ExpertChain(const Layer& mixture, LayerSite site) {
  const std::string outer = site.path + "/experts";
  for (int i = 0; i < static_cast<int>(mixture.inner.size()); ++i) {
    const Layer& inner = mixture.inner[static_cast<std::size_t>(i)];
    site.path = layer_path(outer, i, inner);
    layers_.push_back(inner.kind == LayerKind::Linear
                          ? std::make_unique<ExpertLinear>(inner, site, mixture.choice)
                          : make_layer(inner, site));
    site.width = width_after(inner, site.width, site.path);
  }
}

void ExpertChain::take_runs(const RunBegins& begins, std::int64_t rows, Saved& saved) {
  saved.rows = rows;
  saved.begins = begins;
  for (Saved& inner : saved.inner) {
    inner.rows = rows;
    inner.begins = begins;
  }
}

Task<Buffer> ExpertChain::forward(Buffer x, Saved& saved) {
  return forward_all(std::move(x), saved);
}

Task<Buffer> ExpertChain::backward_input(Buffer dy, Saved& saved, bool wanted) {
  return backward_input_all(std::move(dy), saved, wanted);
}

}  // namespace pipewright::exec
