#include "exec/layers/mixture.hpp"

#include <numeric>
#include <utility>

#include "core/model/layers.hpp"
#include "core/order/call.hpp"
#include "exec/layers/expert_chain.hpp"
#include "exec/layers/leaf_layer.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

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
        shared_(make_shared(layer, site)),
        group_(site.experts),
        name_(as_call_name(site.path)) {}

  Saved new_saved() const override {
    Saved saved{std::vector<Buffer>(kSlots), {}};
    saved.inner.push_back(experts_.new_saved());
    saved.inner.push_back(shared_ ? shared_->new_saved() : Saved());
    return saved;
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    choose(x, saved);
    Buffer sorted = take_sorted(in_);
    ops_.experts().gather_rows(router_, in_, routes(saved), x.floats(), sorted.floats());
    if (group_ != nullptr) {
      sorted = co_await dispatch_first(std::move(sorted), saved);
    } else {
      experts_.take_runs(saved.buffers[kRoutes], static_cast<std::int64_t>(pairs()),
                         saved.inner[kExperts]);
    }
    Buffer z = co_await experts_.forward(std::move(sorted), saved.inner[kExperts]);
    if (group_ != nullptr) z = co_await combine(std::move(z), out_, saved);
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
    if (group_ != nullptr) dz = co_await dispatch(std::move(dz), out_, saved);
    Buffer dsorted = co_await experts_.backward_input(std::move(dz), saved.inner[kExperts], wanted);
    if (wanted && group_ != nullptr) dsorted = co_await combine(std::move(dsorted), in_, saved);
    Buffer dx;
    if (wanted) dx = input_gradient(std::move(dsorted), saved);
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
  /// kLogits holds their gradient from I on; kZ what the experts give, sorted by expert; kRuns
  /// where the runs of rows that have come from others begin.
  enum Slot { kX, kLogits, kWeights, kRoutes, kZ, kRuns, kSlots };
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
  Buffer input_gradient(Buffer dsorted, const Saved& saved) {
    Buffer dx = ops_.take(extent_.words(in_));
    ops_.experts().sum_rows(router_, in_, routes(saved), dsorted.floats(), dx.floats());
    dsorted.reset();
    const Buffer of_router = ops_.take(extent_.words(in_));
    ops_.linear_backward_input(product_, saved.buffers[kLogits].floats(), weights_[0].weights(),
                               of_router.floats());
    ops_.add_to(extent_.words(in_), of_router.floats(), dx.floats());
    return dx;
  }

  // --- Where other ranks hold some of the experts ---

  using Counts = std::vector<std::int32_t>;

  int even() const {
    return even_rows(router_.choice, std::int64_t{extent_.samples} * extent_.sequence);
  }
  Counts counts_between(const Buffer& begin) const {
    Counts counts(static_cast<std::size_t>(router_.choice.experts));
    ops_.experts().count_rows(begin.ids(), even(), counts);
    return counts;
  }
  /// Counts are by expert, members one after another.
  std::vector<std::size_t> rows_by_member(const Counts& counts) const {
    const std::size_t each = counts.size() / static_cast<std::size_t>(group_->size());
    std::vector<std::size_t> rows;
    for (auto first = counts.begin(); first != counts.end(); first += static_cast<long>(each))
      rows.push_back(std::accumulate(first, first + static_cast<long>(each), std::size_t{0}));
    return rows;
  }
  ExchangeOfMembers exchange(const char* way, int width, const Buffer& out) const {
    return {.what = name_ + "/" + way, .rows = even(), .width = width, .out = out.floats()};
  }
  static std::size_t sum_of(const std::vector<std::size_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::size_t{0});
  }
  Buffer take_rows(const std::vector<std::size_t>& rows, int width) const {
    return ops_.take(sum_of(rows) * static_cast<std::size_t>(width));
  }

  /// Rows to the members that hold their experts, for the first time: nobody knows yet how many
  /// come.
  Task<Buffer> dispatch_first(Buffer sorted, Saved& saved) {
    Buffer received;
    ExchangeOfMembers way = exchange("dispatch", in_, sorted);
    way.counts_out = counts_between(saved.buffers[kRoutes]);
    way.counts_in.resize(way.counts_out.size());
    count_evenly(even(), way.counts_in);
    way.make_room = [&] {
      Buffer& runs = saved.buffers[kRuns] = ops_.take_ids(way.counts_in.size() + 1);
      ops_.experts().set_begins(way.counts_in, runs.ids());
      way.rows_out = rows_by_member(way.counts_out);
      way.rows_in = rows_by_member(way.counts_in);
      received = take_rows(way.rows_in, in_);
      way.in = received.floats();
      experts_.take_runs(runs, static_cast<std::int64_t>(sum_of(way.rows_in)),
                         saved.inner[kExperts]);
    };
    co_await group_->exchanged(way);
    co_return received;
  }

  /// The same way again.
  Task<Buffer> dispatch(Buffer sorted, int width, Saved& saved) {
    ExchangeOfMembers way = exchange("dispatch", width, sorted);
    way.rows_out = rows_by_member(counts_between(saved.buffers[kRoutes]));
    way.rows_in = rows_by_member(counts_between(saved.buffers[kRuns]));
    Buffer received = take_rows(way.rows_in, width);
    way.in = received.floats();
    co_await group_->exchanged(way);
    co_return received;
  }

  /// And back.
  Task<Buffer> combine(Buffer made, int width, Saved& saved) {
    ExchangeOfMembers way = exchange("combine", width, made);
    way.rows_out = rows_by_member(counts_between(saved.buffers[kRuns]));
    way.rows_in = rows_by_member(counts_between(saved.buffers[kRoutes]));
    Buffer sorted = take_sorted(width);
    way.in = sorted.floats();
    co_await group_->exchanged(way);
    co_return sorted;
  }

  const Extent extent_;
  TensorOps& ops_;
  const int in_, out_;
  const RouterShape router_;
  const LinearShape product_;  // the router's
  std::vector<Parameter> weights_;
  ExpertChain experts_;
  std::unique_ptr<TrainableLayer> shared_;
  ExpertGroup* const group_;
  const std::string name_;  // as one of calls
  float loss_share_ = 1;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_mixture(const Layer& layer, const LayerSite& site) {
  return std::make_unique<MixtureLayer>(layer, whole_site(site));
}

}  // namespace pipewright::exec
