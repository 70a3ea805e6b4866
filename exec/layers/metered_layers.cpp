#include "exec/layers/metered_layers.hpp"

#include <utility>

#include "exec/layers/own_layer.hpp"
#include "exec/layers/stage_layers.hpp"

namespace pipewright::exec {
namespace {

/// As the model describes it.
class DescribedLayer final : public OwnLayer {
 public:
  DescribedLayer(const CustomLayer& what, MeteredOps& ops)
      : operations_(what.operations),
        kept_(static_cast<std::size_t>(what.kept)),
        held_(static_cast<std::size_t>(what.held)),
        has_weights_(what.weights > 0),
        ops_(ops) {}

  int kept_width() const override { return static_cast<int>(words(kept_)); }
  void forward(const OwnLayerInput& input, std::span<float>) override { count(input); }
  void backward_input(const OwnLayerInput& input, std::span<const float>,
                      std::span<float>) override {
    count(input);
  }
  void backward_weight(const OwnLayerInput& input, std::span<const float>) override {
    if (has_weights_) count(input);
  }

 private:
  std::size_t words(std::size_t bytes) const {
    return (bytes + ops_.bytes_per_element() - 1) / ops_.bytes_per_element();
  }
  void count(const OwnLayerInput& input) {
    const Buffer held = ops_.take(static_cast<std::size_t>(input.rows) * words(held_));
    ops_.count(input.rows * operations_);
  }

  double operations_;
  std::size_t kept_, held_;
  bool has_weights_;
  MeteredOps& ops_;
};

LayerFactory described_by_model(MeteredOps& ops) {
  LayerFactory factory;
  factory.others = [&ops](const Layer& layer) {
    return std::make_unique<DescribedLayer>(layer.custom, ops);
  };
  return factory;
}

/// Operators see that a parameter is there.
void place_parameters(TrainableLayer& layer) {
  static float nowhere = 0;
  std::vector<Parameter*> parameters;
  layer.collect(parameters);
  for (Parameter* p : parameters) p->device_value = p->device_gradient = &nowhere;
}

}  // namespace

std::vector<std::unique_ptr<TrainableLayer>> make_metered_layers(
    const Model& model, int first, int end, Extent extent, MeteredOps& ops,
    std::span<const LayerRecompute> recompute, RankGroups* groups) {
  const LayerFactory factory = described_by_model(ops);
  LayerSite site{.extent = extent, .ops = &ops, .factory = &factory};
  if (groups != nullptr) site = among(*groups, std::move(site));
  auto layers = make_stage_layers(model, first, end, std::move(site), recompute);
  for (const auto& layer : layers) place_parameters(*layer);
  return layers;
}

std::unique_ptr<TrainableLayer> make_metered_layer(const Layer& layer, Extent extent,
                                                   MeteredOps& ops, bool recomputes_attention) {
  const LayerFactory factory = described_by_model(ops);
  SharedTable none;
  auto made = make_layer(layer, {.extent = extent,
                                 .ops = &ops,
                                 .width = width_before(layer),
                                 .factory = &factory,
                                 .recomputes_attention = recomputes_attention,
                                 .shared_table = &none});
  place_parameters(*made);
  return made;
}

}  // namespace pipewright::exec
