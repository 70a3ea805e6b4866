#include "exec/layers/mixture.hpp"

#include <utility>

#include "core/model/layers.hpp"
#include "exec/layers/chain.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

/// In front of the experts: each row once for each of its experts.
Extent sorted(const Extent& extent, const ExpertChoice& choice) {
  return {extent.samples, extent.sequence * choice.top_k};
}

std::vector<Parameter> expert_parameters(const Layer& layer, const LayerSite& site, int experts) {
  std::vector<Parameter> parameters;
  for (const Weight& weight : weights_of_experts(layer, site.width, experts))
    parameters.push_back(declared(site, weight));
  return parameters;
}

/// A linear layer of all experts, on rows that are sorted by expert.
class ExpertLinear final : public KeepingLayer {
 public:
  ExpertLinear(const Layer& layer, const LayerSite& site, const ExpertChoice& choice, int taken)
      : KeepingLayer(site, expert_parameters(layer, site, choice.experts), site.width, layer.out,
                     1),
        shape_{site.extent.rows(), taken, choice.experts, site.width, layer.out},
        bias_(layer.bias ? &weights_[1] : nullptr) {}

  /// Before F.
  static void take_routes(const Buffer& routes, Saved& saved) { saved.buffers[kRoutes] = routes; }

 private:
  enum Slot { kRoutes = kFirstOwn };

  void compute(const Buffer& x, Buffer& y, Saved& saved) override {
    ExpertOps& ops = ops_.experts();
    ops.expert_linear_forward(shape_, begin(saved), x.floats(), weights_[0].weights(), y.floats());
    if (bias_ != nullptr)
      ops.expert_bias_forward(shape_, begin(saved), bias_->weights(), y.floats());
  }
  void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved& saved) override {
    ops_.experts().expert_linear_backward_input(shape_, begin(saved), dy.floats(),
                                                weights_[0].weights(), dx.floats());
  }
  void add_gradients(Saved& saved) override {
    ExpertOps& ops = ops_.experts();
    const float* const dy = saved.buffers[kDy].floats();
    ops.expert_linear_backward_weight(shape_, begin(saved), saved.buffers[kX].floats(), dy,
                                      weights_[0].gradients());
    if (bias_ != nullptr)
      ops.expert_bias_backward_weight(shape_, begin(saved), dy, bias_->gradients());
  }

  /// It lies in front of the routes.
  static const std::int32_t* begin(const Saved& saved) { return saved.buffers[kRoutes].ids(); }

  ExpertLinearShape shape_;
  Parameter* bias_;
};

/// The layers of all experts.
class ExpertChain final : public LayerChain {
 public:
  ExpertChain(const Layer& mixture, LayerSite site) {
    const std::string outer = site.path + "/experts";
    const int taken =
        even_rows(mixture.choice, std::int64_t{site.extent.samples} * site.extent.sequence);
    site.extent = sorted(site.extent, mixture.choice);
    for (int i = 0; i < static_cast<int>(mixture.inner.size()); ++i) {
      const Layer& inner = mixture.inner[static_cast<std::size_t>(i)];
      site.path = layer_path(outer, i, inner);
      is_linear_.push_back(inner.kind == LayerKind::Linear);
      layers_.push_back(is_linear_.back()
                            ? std::make_unique<ExpertLinear>(inner, site, mixture.choice, taken)
                            : make_layer(inner, site));
      site.width = width_behind(inner, site.width, site.path);
    }
  }

  /// Before F.
  void take_routes(const Buffer& routes, Saved& saved) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (is_linear_[i]) ExpertLinear::take_routes(routes, saved.inner[i]);
    }
  }
  Task<Buffer> forward(Buffer x, Saved& saved) override { return forward_all(std::move(x), saved); }
  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    return backward_input_all(std::move(dy), saved, wanted);
  }

 private:
  std::vector<bool> is_linear_;  // by layer
};

LayerSite whole_site(LayerSite site) {
  site.split = Split::Whole;
  site.columns.clear();
  return site;
}

/// What every row goes through besides; null where there is nothing.
std::unique_ptr<TrainableLayer> make_shared(const Layer& layer, LayerSite site) {
  if (layer.shared.empty()) return nullptr;
  site.path += "/shared";
  return make_layer(layer_group("shared", LayerKind::Sequential, layer.shared), site);
}

class MixtureLayer final : public TrainableLayer {
 public:
  MixtureLayer(const Layer& layer, const LayerSite& site)
      : extent_(site.extent),
        ops_(*site.ops),
        in_(site.width),
        out_(layer.out),
        router_{site.extent.rows(), layer.choice},
        product_{site.extent.rows(), site.width, layer.choice.experts},
        weights_(declared_parameters(layer, site)),
        experts_(layer, site),
        shared_(make_shared(layer, site)) {}

  Saved new_saved() const override {
    Saved saved{std::vector<Buffer>(kSlots), {}};
    saved.inner.push_back(experts_.new_saved());
    saved.inner.push_back(shared_ ? shared_->new_saved() : Saved());
    return saved;
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    choose(x, saved);
    Buffer gathered = take_sorted(in_);
    ops_.experts().gather_rows(router_, in_, routes(saved), x.floats(), gathered.floats());
    experts_.take_routes(saved.buffers[kRoutes], saved.inner[kExperts]);
    Buffer z = co_await experts_.forward(std::move(gathered), saved.inner[kExperts]);
    Buffer y = ops_.take(extent_.words(out_));
    ops_.experts().weigh_rows(router_, out_, routes(saved), saved.buffers[kWeights].floats(),
                              z.floats(), y.floats());
    saved.buffers[kZ] = std::move(z);
    if (shared_) {
      const Buffer added = co_await shared_->forward(x, saved.inner[kShared]);
      ops_.add_to(extent_.words(out_), added.floats(), y.floats());
    }
    saved.buffers[kX] = std::move(x);
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dz = weigh_back(dy, saved);
    Buffer dgathered =
        co_await experts_.backward_input(std::move(dz), saved.inner[kExperts], wanted);
    Buffer dx;
    if (wanted) dx = input_gradient(std::move(dgathered), saved);
    if (shared_) {
      const Buffer added =
          co_await shared_->backward_input(std::move(dy), saved.inner[kShared], wanted);
      if (wanted) ops_.add_to(extent_.words(in_), added.floats(), dx.floats());
    }
    co_return dx;
  }

  void backward_weight(Saved& saved) override {
    const float* const dlogits = saved.buffers[kLogits].floats();
    ops_.linear_backward_weight(product_, saved.buffers[kX].floats(), dlogits,
                                weights_[0].gradients());
    if (has_bias())
      ops_.bias_backward_weight(product_.rows, product_.out, dlogits, weights_[1].gradients());
    experts_.backward_weight(saved.inner[kExperts]);
    if (shared_) shared_->backward_weight(saved.inner[kShared]);
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void collect(std::vector<Parameter*>& parameters) override {
    for (Parameter& parameter : weights_) parameters.push_back(&parameter);
    experts_.collect(parameters);
    if (shared_) shared_->collect(parameters);
  }
  void update_statistics() override {
    if (shared_) shared_->update_statistics();
  }
  void set_evaluating(bool evaluating) override {
    if (shared_) shared_->set_evaluating(evaluating);
  }
  void set_loss_share(double share) override {
    loss_share_ = static_cast<float>(share);
    if (shared_) shared_->set_loss_share(share);
  }

 private:
  /// kLogits holds their gradient from I on; kZ what the experts give, sorted by expert.
  enum Slot { kX, kLogits, kWeights, kRoutes, kZ, kSlots };
  enum Inner { kExperts, kShared };

  bool has_bias() const { return weights_.size() > 1; }
  std::size_t pairs() const {
    return extent_.words(1) * static_cast<std::size_t>(router_.choice.top_k);
  }
  Buffer take_sorted(int width) const {
    return ops_.take(pairs() * static_cast<std::size_t>(width));
  }
  Routes routes(const Saved& saved) const {
    return routes_in(router_.choice, pairs(), saved.buffers[kRoutes].ids());
  }

  void choose(const Buffer& x, Saved& saved) {
    Buffer& logits = saved.buffers[kLogits] = ops_.take(extent_.words(product_.out));
    ops_.linear_forward(product_, x.floats(), weights_[0].weights(), logits.floats());
    if (has_bias())
      ops_.bias_forward(product_.rows, product_.out, weights_[1].weights(), logits.floats());
    saved.buffers[kWeights] = ops_.take(pairs());
    saved.buffers[kRoutes] = ops_.take_ids(route_words(router_.choice, pairs()));
    ops_.experts().route(router_, logits.floats(), saved.buffers[kWeights].floats(), routes(saved));
  }

  /// The gradient of what the experts give; the logits become their gradient.
  Buffer weigh_back(const Buffer& dy, Saved& saved) {
    const Buffer dweights = ops_.take(pairs());
    Buffer z = std::exchange(saved.buffers[kZ], Buffer());
    Buffer dz = z.is_shared() ? take_sorted(out_) : z;
    const Buffer weights = std::exchange(saved.buffers[kWeights], Buffer());
    ops_.experts().weigh_rows_backward(router_, out_, routes(saved), weights.floats(), dy.floats(),
                                       z.floats(), dz.floats(), dweights.floats());
    float* const logits = saved.buffers[kLogits].floats();
    ops_.experts().route_backward(router_, loss_share_, logits, weights.floats(), routes(saved),
                                  dweights.floats(), logits);
    return dz;
  }

  /// Through the experts, and then through the router.
  Buffer input_gradient(Buffer dgathered, const Saved& saved) {
    Buffer dx = ops_.take(extent_.words(in_));
    ops_.experts().sum_rows(router_, in_, routes(saved), dgathered.floats(), dx.floats());
    dgathered.reset();
    const Buffer of_router = ops_.take(extent_.words(in_));
    ops_.linear_backward_input(product_, saved.buffers[kLogits].floats(), weights_[0].weights(),
                               of_router.floats());
    ops_.add_to(extent_.words(in_), of_router.floats(), dx.floats());
    return dx;
  }

  const Extent extent_;
  TensorOps& ops_;
  const int in_, out_;
  const RouterShape router_;
  const LinearShape product_;  // the router's
  std::vector<Parameter> weights_;
  ExpertChain experts_;
  std::unique_ptr<TrainableLayer> shared_;
  float loss_share_ = 1;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_mixture(const Layer& layer, const LayerSite& site) {
  return std::make_unique<MixtureLayer>(layer, whole_site(site));
}

}  // namespace pipewright::exec
