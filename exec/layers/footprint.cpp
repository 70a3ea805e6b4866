#include "exec/layers/footprint.hpp"

#include <algorithm>
#include <utility>

#include "exec/layers/metered_layers.hpp"
#include "exec/layers/rank_groups.hpp"
#include "exec/layers/stage_layers.hpp"

namespace pipewright::exec {
namespace {

struct Operations {
  double f = 0, i = 0, w = 0;
};

/// Of a layer on `ops`.
Operations operations_of(TrainableLayer& made, const Layer& layer, Extent extent, MeteredOps& ops,
                         PausePoint& point) {
  const auto pass = [](const Wanted&) {};
  auto since = [&ops, before = 0.0]() mutable {
    return ops.operations() - std::exchange(before, ops.operations());
  };
  Operations operations;
  Saved saved = made.new_saved();
  run_counting(made.forward(ops.take(extent.words(std::max(1, width_before(layer)))), saved), point,
               pass);
  operations.f = since();
  run_counting(made.backward_input(ops.take(extent.words(layer.out)), saved, true), point, pass);
  operations.i = since();
  run_counting(made.backward_weight(saved), point, pass);
  operations.w = since();
  return operations;
}

/// For one sample: all three grow with their number.
Operations operations_of(const Layer& layer, const Model& model, bool recomputes_attention) {
  MeteredOps ops(model.bytes_per_element);
  const Extent extent{1, model.sequence};
  const auto made = make_metered_layer(layer, extent, ops, recomputes_attention);
  PausePoint point;
  return operations_of(*made, layer, extent, ops, point);
}

std::int64_t whole(double amount) {
  // 1 PiB: beyond every machine, and sums over thousands of layers still fit.
  constexpr double kMost = 0x1p50;
  return static_cast<std::int64_t>(std::min(amount, kMost));
}

LayerFootprint footprint_of(const Operations& one, const Layer& layer, const Model& model,
                            int samples) {
  LayerFootprint result;
  result.parameters = whole(parameter_count(layer));
  result.forward_flops = samples * one.f;
  result.input_gradient_flops = samples * one.i;
  result.weight_gradient_flops = samples * one.w;
  result.output_bytes = output_bytes(layer, model, samples);
  return result;
}

}  // namespace

LayerFootprint footprint(const Layer& layer, const Model& model, int samples) {
  return footprint_of(operations_of(layer, model, false), layer, model, samples);
}

LayerFootprint footprint_of_part(const Model& model, int index, int samples,
                                 const StageDivision& ranks) {
  MeteredOps ops(model.bytes_per_element);
  const Extent extent = extent_of_rank(model, 1, ranks);
  RankGroups groups(kFirstPlace, ranks, Numerics::Fast);
  const auto made = make_metered_layers(model, index, index + 1, extent, ops, {}, &groups);
  const Layer& layer = model.layers[static_cast<std::size_t>(index)];
  LayerFootprint result = footprint_of(
      operations_of(*made.front(), layer, extent, ops, groups.point()), layer, model, samples);
  result.parameters = 0;
  std::vector<Parameter*> own;
  made.front()->collect(own);
  for (const Parameter* one : own) result.parameters += one->is_statistic ? 0 : one->start.size;
  return result;
}

std::int64_t output_bytes(const Layer& layer, const Model& model, int samples) {
  const double rows = static_cast<double>(samples) * model.sequence;
  return whole(rows * layer.out * model.bytes_per_element);
}

double redone_share(const Layer& layer, const Model& model, LayerRecompute what) {
  if (what == LayerRecompute::None) return 0;
  if (what == LayerRecompute::Whole) return 1;
  const Operations once = operations_of(layer, model, false);
  const Operations again = operations_of(layer, model, true);
  return once.f > 0 ? (again.i - once.i) / once.f : 0;
}

}  // namespace pipewright::exec
