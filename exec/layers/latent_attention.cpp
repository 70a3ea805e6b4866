// Latent attention: queries, and keys and values, through narrow layers of their own; the part of
// the key that has positions is one for all heads. Ranks divide heads: what goes up to them by
// columns, the output by rows; the way down is whole on every rank, and so is the rotary key, whose
// gradient is a sum over the heads of all.
#include <optional>
#include <utility>

#include "core/model/latent.hpp"
#include "core/model/layers.hpp"
#include "core/order/call.hpp"
#include "exec/layers/context_attention.hpp"
#include "exec/layers/leaf.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/projection.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

LatentShape shape_of_rank(const Layer& layer, const LayerSite& site) {
  const int ranks = site.tensor == nullptr ? 1 : site.tensor->size();
  return {site.extent.samples, site.extent.sequence, layer.heads / ranks, layer.latent};
}

/// From the row to the heads, of which each rank has some.
std::unique_ptr<TrainableLayer> make_way_up(const std::string& name, std::vector<Layer> layers,
                                            LayerSite site) {
  site.path += "/" + name;
  site.ends_divided = true;
  return make_layer(layer_group(name, LayerKind::Sequential, std::move(layers)), site);
}

std::unique_ptr<TrainableLayer> make_rotary_key(const Layer& layer, LayerSite site) {
  site.path += "/" + layer.name;
  return make_layer(layer, site);
}

class LatentAttentionLayer final : public TrainableLayer {
 public:
  LatentAttentionLayer(const Layer& layer, const LayerSite& site)
      : ops_(*site.ops),
        tensor_(site.tensor),
        rotary_path_(as_call_name(site.path + "/rotary key")),
        shape_(shape_of_rank(layer, site)),
        rotary_base_(layer.rotary_base),
        extent_(site.extent),
        width_(site.width),
        recomputes_(site.recomputes_attention),
        adds_rows_in_turns_(site.adds_rows_in_turns),
        place_(site.context_place()),
        queries_(make_way_up("queries", latent_queries(layer), site)),
        keys_values_(make_way_up("keys and values", latent_keys_and_values(layer), site)),
        rotary_key_(make_rotary_key(latent_rotary_key(layer), site)),
        weights_(declared_parameters(layer, site)),
        output_(site, layer.heads * layer.latent.value, width_, weights_[0], nullptr,
                {Split::Rows}) {
    if (tensor_ != nullptr) turns_ = turns_of({{0, shape_.heads}}, tensor_->size());
    if (site.context != nullptr) on_parts_.emplace(site, shape_);
    for (Parameter& weight : weights_) weight.sees_own_rows = adds_rows_in_turns_;
  }

  Saved new_saved() const override {
    Saved saved{std::vector<Buffer>(kSlots), {}};
    for (const auto* layer : {&queries_, &keys_values_, &rotary_key_})
      saved.inner.push_back((*layer)->new_saved());
    return saved;
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer queries = co_await queries_->forward(x, saved.inner[kQueriesLayer]);
    rotate_queries(false, queries);
    saved.buffers[kQueries] = std::move(queries);
    saved.buffers[kKeysValues] = co_await keys_values_->forward(x, saved.inner[kKeysValuesLayer]);
    Buffer key = co_await rotary_key_->forward(std::move(x), saved.inner[kRotaryKeyLayer]);
    rotate_key(false, key);
    saved.buffers[kRotaryKey] = std::move(key);
    {
      const Buffer keys = co_await keys_of_all(saved);
      attend(saved, keys);
    }
    Buffer y = ops_.take(extent_.words(width_));
    co_await output_.forward(shape_.rows(), saved.buffers[kContext].floats(), y.floats());
    if (recomputes_) {
      saved.buffers[kKept].reset();
      saved.buffers[kContext].reset();
    }
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Gradients gradients = co_await through_attention(dy, saved);
    saved.buffers[kDy] = std::move(dy);
    Buffer dkey = co_await sum_over_heads(std::move(gradients.rotary_keys));
    rotate_key(true, dkey);
    rotate_queries(true, gradients.queries);
    Buffer dx = co_await queries_->backward_input(std::move(gradients.queries),
                                                  saved.inner[kQueriesLayer], wanted);
    const Buffer of_values = co_await keys_values_->backward_input(
        std::move(gradients.keys_values), saved.inner[kKeysValuesLayer], wanted);
    const Buffer of_key =
        co_await rotary_key_->backward_input(std::move(dkey), saved.inner[kRotaryKeyLayer], wanted);
    if (!wanted) co_return Buffer();
    ops_.add_to(extent_.words(width_), of_values.floats(), dx.floats());
    ops_.add_to(extent_.words(width_), of_key.floats(), dx.floats());
    co_return dx;
  }

  Task<void> backward_weight(Saved& saved) override {
    if (!adds_rows_in_turns_)
      co_await output_.backward_weight(shape_.rows(), saved.buffers[kContext].floats(),
                                       saved.buffers[kDy].floats());
    co_await rotary_key_->backward_weight(saved.inner[kRotaryKeyLayer]);
    co_await keys_values_->backward_weight(saved.inner[kKeysValuesLayer]);
    co_await queries_->backward_weight(saved.inner[kQueriesLayer]);
    for (Buffer& buffer : saved.buffers) buffer.reset();
  }

  void add_own_rows(Saved& saved, const Range& rows) override {
    if (adds_rows_in_turns_)
      output_.add_own_rows(rows, saved.buffers[kContext].floats(), saved.buffers[kDy].floats());
    rotary_key_->add_own_rows(saved.inner[kRotaryKeyLayer], rows);
    keys_values_->add_own_rows(saved.inner[kKeysValuesLayer], rows);
    queries_->add_own_rows(saved.inner[kQueriesLayer], rows);
  }

  void collect(std::vector<Parameter*>& parameters) override {
    queries_->collect(parameters);
    keys_values_->collect(parameters);
    rotary_key_->collect(parameters);
    for (Parameter& parameter : weights_) parameters.push_back(&parameter);
  }

 private:
  // kKept: probabilities, or what the device keeps in their place.
  enum Slot { kQueries, kKeysValues, kRotaryKey, kKept, kContext, kDy, kSlots };
  enum Inner { kQueriesLayer, kKeysValuesLayer, kRotaryKeyLayer };

  struct Gradients {
    Buffer queries, keys_values, rotary_keys;
  };

  void rotate_queries(bool back, Buffer& queries) {
    ops_.llama().rotate({.samples = shape_.samples,
                         .sequence = shape_.sequence,
                         .heads = shape_.heads,
                         .head_width = shape_.widths.rotary,
                         .stride = shape_.query_width(),
                         .base = rotary_base_,
                         .head_stride = shape_.widths.query(),
                         .neighbours = true,
                         .context = place_},
                        back,
                        ops_.at(queries.floats(), static_cast<std::size_t>(shape_.widths.plain)));
  }
  void rotate_key(bool back, Buffer& key) {
    ops_.llama().rotate({.samples = shape_.samples,
                         .sequence = shape_.sequence,
                         .heads = 1,
                         .head_width = shape_.widths.rotary,
                         .stride = shape_.widths.rotary,
                         .base = rotary_base_,
                         .neighbours = true,
                         .context = place_},
                        back, key.floats());
  }

  static LatentInputs inputs(const Saved& saved) {
    return {saved.buffers[kQueries].floats(), saved.buffers[kKeysValues].floats(),
            saved.buffers[kRotaryKey].floats()};
  }

  /// Nothing where this rank has whole sequences.
  Task<Buffer> keys_of_all(const Saved& saved) const {
    if (!on_parts_) co_return Buffer();
    co_return co_await on_parts_->gather_keys(saved.buffers[kKeysValues],
                                              saved.buffers[kRotaryKey]);
  }

  void attend(Saved& saved, const Buffer& keys) {
    saved.buffers[kKept] = on_parts_ ? ops_.take(on_parts_->shape().probabilities())
                                     : ops_.latent().take_of_latent_attention(shape_);
    saved.buffers[kContext] = ops_.take(extent_.words(shape_.context_width()));
    if (on_parts_)
      return on_parts_->forward(saved.buffers[kQueries], keys, saved.buffers[kKept].floats(),
                                saved.buffers[kContext].floats());
    ops_.latent().latent_attention_forward(shape_, inputs(saved), saved.buffers[kKept].floats(),
                                           saved.buffers[kContext].floats());
  }

  /// What attention has read goes.
  Task<Gradients> through_attention(const Buffer& dy, Saved& saved) {
    const Buffer keys = co_await keys_of_all(saved);
    if (recomputes_) attend(saved, keys);
    const Buffer dcontext = ops_.take(extent_.words(shape_.context_width()));
    co_await output_.backward_input(shape_.rows(), dy.floats(), dcontext.floats());
    Gradients gradients{ops_.take(extent_.words(shape_.query_width())),
                        ops_.take(extent_.words(shape_.key_value_width())),
                        ops_.take(extent_.words(shape_.rotary_width()))};
    if (on_parts_) {
      co_await on_parts_->backward_input({.queries = saved.buffers[kQueries],
                                          .keys = keys,
                                          .probabilities = saved.buffers[kKept],
                                          .dcontext = dcontext,
                                          .dqueries = gradients.queries,
                                          .dkeys_values = gradients.keys_values,
                                          .drotary_keys = gradients.rotary_keys});
    } else {
      ops_.latent().latent_attention_backward_input(
          shape_, inputs(saved), saved.buffers[kKept].floats(), saved.buffers[kContext].floats(),
          dcontext.floats(),
          {gradients.queries.floats(), gradients.keys_values.floats(),
           gradients.rotary_keys.floats()});
    }
    for (const Slot read : {kQueries, kKeysValues, kRotaryKey, kKept}) saved.buffers[read].reset();
    co_return gradients;
  }

  /// Over those of all ranks.
  Task<Buffer> sum_over_heads(const Buffer by_head) {
    const int rotary = shape_.widths.rotary;
    Buffer all = ops_.take(extent_.words(rotary));
    const auto add = [&](float* y) {
      ops_.latent().add_heads(shape_.rows(), shape_.heads, rotary, by_head.floats(), y);
    };
    const auto sum_of_own = [&](float* y) {
      ops_.clear(extent_.words(rotary), y);
      add(y);
    };
    if (tensor_ == nullptr) {
      sum_of_own(all.floats());
      co_return all;
    }
    SumOfMembers sum{.what = rotary_path_,
                     .values = all.floats(),
                     .rows = shape_.rows(),
                     .width = rotary,
                     .multiply = sum_of_own,
                     .turns = turns_,
                     .go_on = [&](const Range&, float* y) { add(y); }};
    co_await tensor_->together(sum);
    co_return all;
  }

  TensorOps& ops_;
  TensorGroup* const tensor_;
  const std::string rotary_path_;
  const LatentShape shape_;  // with this rank's heads
  const double rotary_base_;
  const Extent extent_;
  const int width_;
  const bool recomputes_;
  const bool adds_rows_in_turns_;  // add_own_rows() has added what the output's weights get
  const ContextPlace place_;
  std::optional<ContextLatentAttention>
      on_parts_;  // where ranks have a part of every sequence each
  std::unique_ptr<TrainableLayer> queries_, keys_values_, rotary_key_;
  std::vector<Parameter> weights_;
  Projection output_;
  std::vector<ChainTurn> turns_;  // of the sum over heads
};

}  // namespace

std::unique_ptr<TrainableLayer> make_latent_attention(const Layer& layer, const LayerSite& site) {
  return std::make_unique<LatentAttentionLayer>(layer, site);
}

}  // namespace pipewright::exec
