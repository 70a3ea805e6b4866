#include "planner/memory/stage_buffers.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/model/tensor_split.hpp"
#include "exec/layers/divided/divided_loss.hpp"
#include "exec/layers/divided/row_gradients.hpp"
#include "exec/layers/metered_layers.hpp"
#include "exec/layers/rank_groups.hpp"
#include "exec/layers/stage_layers.hpp"

namespace pipewright::planner {
namespace {

using exec::Buffer;

class StageWalk {
 public:
  StageWalk(const Model& model, const StagePlan& stage, int micro_batch_size,
            std::span<const LayerRecompute> recompute, const StageDivision& ranks = {},
            RowsToExperts rows = RowsToExperts::Even,
            exec::Numerics numerics = exec::Numerics::Fast)
      : model_(model),
        stage_(stage),
        extent_(exec::extent_of_rank(model, micro_batch_size, ranks)),
        ops_(model.bytes_per_element),
        rows_(rows),
        groups_(kFirstPlace, ranks, numerics),
        divides_logits_(is_last() && vocabulary_split(model, ranks.tensor).head),
        layers_(exec::make_metered_layers(model, stage.first_layer, stage.end_layer, extent_, ops_,
                                          recompute, &groups_)),
        row_gradients_(layers_, groups_, ops_, extent_) {
    for (const auto& layer : layers_) saved_.push_back(layer->new_saved());
  }

  ActionBytes forward() {
    const std::int64_t before = begin();
    Buffer x = forward_all(true);
    if (is_last()) {
      loss_ = is_cross_entropy() && x.is_shared() ? floats(width_of_output()) : x;
      bring_losses_together();
    } else {
      x.reset();
      const Buffer message = of_message(width_out());
    }
    x.reset();
    return since(before);
  }

  /// The last stage makes its outcome where the outputs are.
  ActionBytes forward_alone(exec::RunMode mode) {
    for (const auto& layer : layers_) layer->set_evaluating(true);
    const std::int64_t before = begin();
    Buffer x = forward_all(false);
    if (is_last()) {
      if (mode == exec::RunMode::Evaluate) bring_losses_together();
    } else {
      x.reset();
      const Buffer message = of_message(width_out());
    }
    return since(before);
  }

  ActionBytes backward_input() {
    const std::int64_t before = begin();
    Buffer dy = output_gradient();
    for (std::size_t l = layers_.size(); l-- > 0;)
      dy = run(layers_[l]->backward_input(std::move(dy), saved_[l], l > 0 || !is_first()));
    dy.reset();
    if (!is_first()) const Buffer message = of_message(width_in());
    return since(before);
  }

  ActionBytes backward_weight() {
    const std::int64_t before = begin();
    const Buffer sums = run(row_gradients_.bring_together(saved_));
    for (std::size_t l = layers_.size(); l-- > 0;) run(layers_[l]->backward_weight(saved_[l]));
    return since(before);
  }

 private:
  template <class T>
  T run(exec::Task<T> task) {
    return exec::run_counting(std::move(task), groups_.point(), [&](const exec::Wanted& wanted) {
      if (rows_ == RowsToExperts::Most && wanted.exchange != nullptr)
        let_most_come(*wanted.exchange);
    });
  }
  void let_most_come(exec::ExchangeOfMembers& exchange) {
    if (exchange.counts_in.empty()) return;
    exec::count_evenly(exchange.most_in * groups_.experts()->size(), exchange.counts_in);
  }
  std::int64_t begin() {
    ops_.forget_peak();
    return ops_.live_bytes();
  }
  ActionBytes since(std::int64_t before) const {
    return {ops_.live_bytes() - before, ops_.peak_bytes() - before};
  }
  const Layer& layer(int index) const { return model_.layers[static_cast<std::size_t>(index)]; }
  bool is_first() const { return stage_.first_layer == 0; }
  bool is_last() const { return stage_.end_layer == static_cast<int>(model_.layers.size()); }
  bool is_cross_entropy() const { return model_.loss == LossKind::SoftmaxCrossEntropy; }
  int width_in() const { return is_first() ? layer(0).in : layer(stage_.first_layer - 1).out; }
  int width_out() const { return layer(stage_.end_layer - 1).out; }
  /// Of what the last layer gives here.
  int width_of_output() {
    return divides_logits_ ? width_out() / groups_.tensor()->size() : width_out();
  }
  void bring_losses_together() {
    if (divides_logits_)
      run(exec::bring_logits_together(ops_, *groups_.tensor(), extent_.rows(),
                                      exec::unknown_logits()));
    if (groups_.context() != nullptr)
      run(exec::bring_losses_together(ops_, *groups_.context(), extent_.rows(), {}));
  }
  Buffer floats(int width) { return ops_.take(extent_.words(width)); }
  /// Where ranks divide rows, each sends its own.
  Buffer of_message(int width) {
    const auto members = groups_.divides_rows() ? groups_.tensor()->size() : 1;
    return ops_.take(extent_.words(width) / static_cast<std::size_t>(members));
  }

  /// Whether what layers keep for a backward stays.
  Buffer forward_all(bool keeps) {
    const bool reads_ids = is_first() && exec::width_before(model_.layers.front()) == 0;
    Buffer x = reads_ids ? ops_.take_ids(extent_.words(1)) : of_message(width_in());
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      x = run(layers_[l]->forward(std::move(x), saved_[l]));
      if (!keeps) let_go(saved_[l]);
    }
    return x;
  }

  /// The gradient of the output: the last stage makes it of what its loss has kept.
  Buffer output_gradient() {
    if (!is_last()) return of_message(width_out());
    const Buffer kept = std::exchange(loss_, Buffer());
    return kept.is_shared() ? floats(width_of_output()) : kept;
  }

  const Model& model_;
  const StagePlan& stage_;
  const exec::Extent extent_;
  exec::MeteredOps ops_;  // before what holds its buffers
  const RowsToExperts rows_;
  exec::RankGroups groups_;
  const bool divides_logits_;
  std::vector<std::unique_ptr<exec::TrainableLayer>> layers_;
  exec::RowGradients row_gradients_;
  std::vector<exec::Saved> saved_;  // by layer
  Buffer loss_;
};

}  // namespace

StageBuffers buffers_of(const Model& model, const StagePlan& stage, int micro_batch_size,
                        std::span<const LayerRecompute> recompute, const StageDivision& ranks,
                        RowsToExperts rows, exec::Numerics numerics) {
  StageWalk walk(model, stage, micro_batch_size, recompute, ranks, rows, numerics);
  StageBuffers buffers;
  buffers.f = walk.forward();
  buffers.i = walk.backward_input();
  buffers.w = walk.backward_weight();
  return buffers;
}

ActionBytes forward_alone(const Model& model, const StagePlan& stage, int micro_batch_size,
                          std::span<const LayerRecompute> recompute, const StageDivision& ranks,
                          exec::Numerics numerics, exec::RunMode mode) {
  return StageWalk(model, stage, micro_batch_size, recompute, ranks, RowsToExperts::Even, numerics)
      .forward_alone(mode);
}

}  // namespace pipewright::planner
