#include "exec/layers/own_layer.hpp"

#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

/// An OwnLayer among the others: it holds what micro-batches leave.
class OwnLayerHolder final : public PlainLayer {
 public:
  OwnLayerHolder(std::unique_ptr<OwnLayer> layer, int in, int out, const LayerSite& site)
      : layer_(std::move(layer)),
        rows_(site.extent.rows()),
        words_in_(site.extent.words(in)),
        words_out_(site.extent.words(out)),
        words_kept_(site.extent.words(layer_->kept_width())),
        ops_(*site.ops) {}

  Saved new_saved() const override { return {std::vector<Buffer>(3), {}}; }

  Buffer forward_now(Buffer x, Saved& saved) override {
    saved.buffers[kX] = std::move(x);
    if (words_kept_ > 0) saved.buffers[kKept] = ops_.take(words_kept_);
    Buffer y = ops_.take(words_out_);
    layer_->forward(input(saved), {y.floats(), words_out_});
    return y;
  }

  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(words_in_);
      layer_->backward_input(input(saved), {dy.floats(), words_out_}, {dx.floats(), words_in_});
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  Task<void> backward_weight(Saved& saved) override {
    layer_->backward_weight(input(saved), {saved.buffers[kDy].floats(), words_out_});
    for (Buffer& buffer : saved.buffers) buffer.reset();
    co_return;
  }

  void collect(std::vector<Parameter*>& parameters) override {
    for (Parameter* p : layer_->parameters()) parameters.push_back(p);
  }

 private:
  enum Slot { kX, kKept, kDy };

  OwnLayerInput input(const Saved& saved) const {
    const Buffer& kept = saved.buffers[kKept];
    return {rows_,
            {saved.buffers[kX].floats(), words_in_},
            kept ? std::span<float>(kept.floats(), words_kept_) : std::span<float>()};
  }

  std::unique_ptr<OwnLayer> layer_;
  int rows_;
  std::size_t words_in_, words_out_, words_kept_;
  TensorOps& ops_;
};

[[noreturn]] void refuse_type(const Layer& layer, const LayerSite& site) {
  const std::string known = "layer \"" + site.path + "\": ";
  if (site.factory == nullptr) {
    throw InputError(known + "layers of type \"" + layer.custom.type +
                     "\" are made by the program that brings them; this one brings none");
  }
  std::vector<std::string_view> names;
  for (const auto& [name, maker] : site.factory->makers) names.push_back(name);
  throw InputError(known + "nobody makes layers of type \"" + layer.custom.type + "\"" +
                   did_you_mean(layer.custom.type, names) +
                   "; add a maker to the run's LayerFactory");
}

}  // namespace

std::string OwnLayerSite::setting(const std::string& name, const std::string& otherwise) const {
  const auto found = settings->find(name);
  return found == settings->end() ? otherwise : found->second;
}

Parameter OwnLayerSite::random(const std::string& name, std::size_t size, float bound) const {
  Parameter parameter =
      allocated(*site, {.name = name, .size = static_cast<std::int64_t>(size), .bound = bound});
  parameter.decays = true;
  return parameter;
}

Parameter OwnLayerSite::constant(const std::string& name, std::size_t size, float value) const {
  return allocated(*site, {.name = name, .size = static_cast<std::int64_t>(size), .value = value});
}

std::unique_ptr<TrainableLayer> make_own_layer(const Layer& layer, const LayerSite& site) {
  if (site.factory == nullptr) refuse_type(layer, site);
  const auto found = site.factory->makers.find(layer.custom.type);
  const bool is_named = found != site.factory->makers.end();
  if (!is_named && !site.factory->others) refuse_type(layer, site);
  std::unique_ptr<OwnLayer> made =
      is_named ? found->second({site.width, layer.out, &layer.custom.settings, &site})
               : site.factory->others(layer);
  if (made == nullptr) {
    throw InputError("layer \"" + site.path + "\": the maker of type \"" + layer.custom.type +
                     "\" returned no layer");
  }
  return std::make_unique<OwnLayerHolder>(std::move(made), site.width, layer.out, site);
}

}  // namespace pipewright::exec
