#include "exec/layers/mixture.hpp"

#include <utility>

#include "core/model/layers.hpp"
#include "core/order/call.hpp"
#include "exec/layers/context_group.hpp"
#include "exec/layers/divided_rows.hpp"
#include "exec/layers/expert_chain.hpp"
#include "exec/layers/expert_dispatch.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_group.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

LayerSite whole_site(LayerSite site) {
  site.split = Split::Whole;
  site.columns.clear();
  return site;
}

/// The shared expert, which every row goes through; null where there is none.
std::unique_ptr<TrainableLayer> make_shared(const Layer& layer, LayerSite site) {
  if (layer.shared.empty()) return nullptr;
  site.path += "/shared";
  return make_layer(layer_group("shared", LayerKind::Sequential, layer.shared), site);
}

class MixtureLayer final : public TrainableLayer {
 public:
  MixtureLayer(const Layer& layer, const LayerSite& site)
      : extent_(site.own_extent()),
        ops_(*site.ops),
        in_(site.width),
        out_(layer.out),
        router_(router_shape(site, layer.choice)),
        product_{extent_.rows(), site.width, layer.choice.experts},
        rows_(site),
        all_rows_(site.extent.rows()),
        tensor_(site.divides_rows ? site.tensor : nullptr),
        context_(site.context),
        name_(as_call_name(site.path)),
        sees_own_rows_(site.divides_rows || site.adds_rows_in_turns),
        weights_(declared_parameters(layer, site)),
        router_bias_(layer.bias ? &weights_[1] : nullptr),
        balance_bias_(layer.choice.balance_rate > 0 ? &weights_.back() : nullptr),
        experts_(layer, site),
        shared_(make_shared(layer, site)),
        dispatch_(site, router_) {
    weights_[0].sees_own_rows = sees_own_rows_;
    if (router_bias_ != nullptr) router_bias_->sees_own_rows = sees_own_rows_;
  }

  Saved new_saved() const override {
    Saved saved{std::vector<Buffer>(kSlots), {}};
    saved.inner.push_back(experts_.new_saved());
    saved.inner.push_back(shared_ ? shared_->new_saved() : Saved());
    return saved;
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    choose(x, saved);
    const Buffer earlier = co_await count_earlier(saved);
    ops_.experts().place_rows(router_, earlier ? earlier.floats() : nullptr, routes(saved));
    Buffer sorted = take_sorted(in_);
    ops_.experts().gather_rows(router_, in_, routes(saved), x.floats(), sorted.floats());
    saved.begins = dispatch_.begins_in(routes(saved));
    ExpertDispatch::Received received =
        co_await dispatch_.send_first(std::move(sorted), in_, saved.begins);
    ExpertChain::take_runs(received.runs.begins, received.runs.rows, saved.inner[kExperts]);
    Buffer z = co_await experts_.forward(std::move(received.rows), saved.inner[kExperts]);
    z = co_await dispatch_.send_back(std::move(z), out_, saved.begins, received.runs);
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
    const ExpertDispatch::Runs received = runs(saved);
    Buffer dz = weigh_back(dy, saved);
    dz = co_await dispatch_.send(std::move(dz), out_, saved.begins, received);
    Buffer dsorted = co_await experts_.backward_input(std::move(dz), saved.inner[kExperts], wanted);
    Buffer dx;
    if (wanted) {
      dsorted = co_await dispatch_.send_back(std::move(dsorted), in_, saved.begins, received);
      dx = input_gradient(std::move(dsorted), saved);
    }
    if (shared_) {
      const Buffer added =
          co_await shared_->backward_input(std::move(dy), saved.inner[kShared], wanted);
      if (wanted) ops_.add_to(extent_.words(in_), added.floats(), dx.floats());
    }
    co_return dx;
  }

  Task<void> backward_weight(Saved& saved) override {
    if (!sees_own_rows_)
      add_to_router(saved, {0, product_.rows}, [](Parameter& one) { return one.gradients(); });
    if (balance_bias_ != nullptr) count_for_balance(saved);
    co_await experts_.backward_weight(saved.inner[kExperts]);
    if (shared_) co_await shared_->backward_weight(saved.inner[kShared]);
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  /// Experts have the rows of all along tp anyway.
  Task<void> gather_kept_rows(Saved& saved) override {
    const std::string name = name_ + "-kept-";
    co_await rows_.complete(name + "0", saved.buffers[kX], all_rows_, in_);
    co_await rows_.complete(name + "1", saved.buffers[kLogits], all_rows_, product_.out);
    if (shared_) co_await shared_->gather_kept_rows(saved.inner[kShared]);
  }
  void add_own_rows(Saved& saved, const Range& rows) override {
    if (sees_own_rows_) add_to_router(saved, rows, [](Parameter& one) { return one.of_own_rows; });
    experts_.add_own_rows(saved.inner[kExperts], rows);
    if (shared_) shared_->add_own_rows(saved.inner[kShared], rows);
  }

  void collect(std::vector<Parameter*>& parameters) override {
    for (Parameter& parameter : weights_) parameters.push_back(&parameter);
    experts_.collect(parameters);
    if (shared_) shared_->collect(parameters);
  }
  void update_statistics() override {
    if (balance_bias_ != nullptr) {
      ops_.experts().balance(router_.choice.experts,
                             static_cast<float>(router_.choice.balance_rate),
                             balance_bias_->gradients(), balance_bias_->values());
    }
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
  /// kLogits holds their gradient from I on; kZ what the experts give, sorted by expert; kChoices
  /// how often experts were chosen in the whole micro-batch, where this rank has a part of it, and
  /// kOwnChoices how often on the ranks along tp.
  enum Slot { kX, kLogits, kWeights, kRoutes, kZ, kChoices, kOwnChoices, kSlots };
  enum Inner { kExperts, kShared };

  std::size_t pairs() const {
    return extent_.words(1) * static_cast<std::size_t>(router_.choice.top_k);
  }
  Buffer take_sorted(int width) const {
    return ops_.take(pairs() * static_cast<std::size_t>(width));
  }
  static ExpertDispatch::Runs runs(const Saved& saved) {
    return {saved.inner[kExperts].begins, saved.inner[kExperts].rows};
  }
  Routes routes(const Saved& saved) const {
    return routes_in(router_, saved.buffers[kRoutes].ids());
  }

  /// Whether anything depends on the choices of rows that other ranks have: who is dropped and the
  /// loss that balances experts are decided over all rows of a micro-batch, and the bias that does
  /// is one for all along tp.
  bool needs_all_choices() const {
    const ExpertChoice& choice = router_.choice;
    const bool is_over_all = choice.capacity_factor > 0 || choice.balance_loss > 0;
    return (router_.place.parts() > 1 && is_over_all) || counts_for_all_along_tp();
  }

  /// Where ranks have a part of a micro-batch each, they tell one another how often each expert was
  /// chosen, chunk by chunk. The result: for how many rows in front of each own chunk.
  Task<Buffer> count_earlier(Saved& saved) {
    if (!needs_all_choices()) co_return Buffer();
    const auto own = static_cast<std::size_t>(router_.runs());
    const RowParts& place = router_.place;
    const Buffer counts = ops_.take_floats(own * static_cast<std::size_t>(place.parts()));
    const auto of_rank = [&](int index) {
      return counts.floats() + own * static_cast<std::size_t>(index);
    };
    ops_.experts().count_choices_of_chunks(router_, routes(saved), of_rank(place.index()));
    RowsOfMembers wanted{.what = name_ + "-choices",
                         .values = of_rank(place.index() - place.tensor),
                         .rows = place.tensor_parts * router_.chunks(),
                         .width = router_.choice.experts,
                         .in_floats = true};
    if (tensor_ != nullptr) co_await tensor_->gathered(wanted);
    wanted.values = counts.floats();
    wanted.rows *= place.context.parts;
    if (context_ != nullptr) co_await context_->gathered(wanted);
    Buffer earlier = ops_.take_floats(own);
    const auto experts = static_cast<std::size_t>(router_.choice.experts);
    Buffer& all = saved.buffers[kChoices] = ops_.take_floats(experts);
    Buffer of_place = ops_.take_floats(experts);
    ops_.experts().sum_choices(router_, counts.floats(),
                               {earlier.floats(), all.floats(), of_place.floats()});
    if (counts_for_all_along_tp()) saved.buffers[kOwnChoices] = std::move(of_place);
    co_return earlier;
  }

  /// What balances experts is a statistic of each replica, and the same on all ranks along tp.
  bool counts_for_all_along_tp() const { return tensor_ != nullptr && balance_bias_ != nullptr; }
  void count_for_balance(Saved& saved) {
    if (!counts_for_all_along_tp())
      return ops_.experts().count_choices(router_, routes(saved), balance_bias_->gradients());
    ops_.add_to_gradient(static_cast<std::size_t>(router_.choice.experts),
                         saved.buffers[kOwnChoices].floats(), balance_bias_->gradients());
  }

  void choose(const Buffer& x, Saved& saved) {
    Buffer& logits = saved.buffers[kLogits] = ops_.take_floats(extent_.words(product_.out));
    ops_.experts().router_forward(product_, x.floats(), weights_[0].weights(),
                                  router_bias_ != nullptr ? router_bias_->weights() : nullptr,
                                  logits.floats());
    saved.buffers[kWeights] = ops_.take_floats(pairs());
    saved.buffers[kRoutes] = ops_.take_ids(route_words(router_));
    ops_.experts().route(router_, logits.floats(),
                         balance_bias_ != nullptr ? balance_bias_->weights() : nullptr,
                         saved.buffers[kWeights].floats(), routes(saved));
  }

  /// The gradient of what the experts give; the logits become their gradient.
  Buffer weigh_back(const Buffer& dy, Saved& saved) {
    const Buffer dweights = ops_.take_floats(pairs());
    Buffer z = std::exchange(saved.buffers[kZ], Buffer());
    Buffer dz = z.is_shared() ? take_sorted(out_) : z;
    const Buffer weights = std::exchange(saved.buffers[kWeights], Buffer());
    ops_.experts().weigh_rows_backward(router_, out_, routes(saved), weights.floats(), dy.floats(),
                                       z.floats(), dz.floats(), dweights.floats());
    float* const logits = saved.buffers[kLogits].floats();
    const Buffer choices = std::exchange(saved.buffers[kChoices], Buffer());
    ops_.experts().route_backward(router_, loss_share_, logits, weights.floats(), routes(saved),
                                  choices ? choices.floats() : nullptr, dweights.floats(), logits);
    return dz;
  }

  /// What these rows give, to the array that a parameter has for it.
  template <class To>
  void add_to_router(const Saved& saved, const Range& rows, To to) {
    const LinearShape product{static_cast<int>(rows.count), product_.in, product_.out};
    const float* const x = ops_.at(saved.buffers[kX].floats(), words_of(rows.begin, product.in));
    const float* const dlogits =
        saved.buffers[kLogits].floats() + words_of(rows.begin, product.out);
    ops_.experts().router_backward_weight(product, x, dlogits, to(weights_[0]),
                                          router_bias_ != nullptr ? to(*router_bias_) : nullptr);
  }

  /// Through the experts, and then through the router.
  Buffer input_gradient(Buffer dsorted, const Saved& saved) {
    Buffer dx = ops_.take(extent_.words(in_));
    ops_.experts().sum_rows(router_, in_, routes(saved), dsorted.floats(), dx.floats());
    dsorted.reset();
    const Buffer of_router = ops_.take(extent_.words(in_));
    ops_.experts().router_backward_input(product_, saved.buffers[kLogits].floats(),
                                         weights_[0].weights(), of_router.floats());
    ops_.add_to(extent_.words(in_), of_router.floats(), dx.floats());
    return dx;
  }

  const Extent extent_;
  TensorOps& ops_;
  const int in_, out_;
  const RouterShape router_;
  const LinearShape product_;  // the router's
  const DividedRows rows_;
  const int all_rows_;         // that the ranks along tp have together
  TensorGroup* const tensor_;  // null: each of its ranks has all rows
  ContextGroup* const context_;
  const std::string name_;    // as one of calls
  const bool sees_own_rows_;  // add_own_rows() has added what the router's weights get
  std::vector<Parameter> weights_;
  Parameter* const router_bias_;
  Parameter* const balance_bias_;  // a statistic; its gradients count how often each was chosen
  ExpertChain experts_;
  std::unique_ptr<TrainableLayer> shared_;
  ExpertDispatch dispatch_;
  float loss_share_ = 1;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_mixture(const Layer& layer, const LayerSite& site) {
  return std::make_unique<MixtureLayer>(layer, whole_site(site));
}

}  // namespace pipewright::exec
