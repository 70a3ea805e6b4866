#include "planner/memory/stage_buffers.hpp"

#include <optional>
#include <utility>

#include "core/model/tie.hpp"
#include "planner/memory/layer_buffers.hpp"

namespace pipewright::planner {
namespace {

/// Neighbours that are recomputed whole count as one: only what comes into the first is kept.
struct Piece {
  int first = 0, end = 0;  // layers of the model
  LayerRecompute what = LayerRecompute::None;
  Kept kept;
  Held input;  // of one that is recomputed whole
};

class StageWalk {
 public:
  StageWalk(const Model& model, const StagePlan& stage, int micro_batch_size,
            std::span<const LayerRecompute> recompute)
      : model_(model), stage_(stage), layers_(meter_, model, micro_batch_size) {
    const std::optional<Tie> tie = tie_of(model);
    for (int l = stage.first_layer; l < stage.end_layer; ++l) {
      const LayerRecompute what =
          recompute.empty() ? LayerRecompute::None : recompute[static_cast<std::size_t>(l)];
      const bool joins = what == LayerRecompute::Whole && !pieces_.empty() &&
                         pieces_.back().what == what && !(tie && tie->head == l);
      if (joins) {
        pieces_.back().end = l + 1;
      } else {
        pieces_.push_back({l, l + 1, what, {}, nullptr});
      }
    }
  }

  ActionBytes forward() {
    const std::int64_t before = begin();
    Held x = input();
    for (Piece& piece : pieces_) x = forward(piece, std::move(x));
    if (is_last()) {
      loss_ = is_cross_entropy() && x.use_count() > 1 ? layers_.rows_of(width_out()) : x;
      x = nullptr;
    } else {
      x = nullptr;
      const Held message = layers_.rows_of(width_out());
    }
    return since(before);
  }

  /// The last stage makes its outcome where the outputs are.
  ActionBytes forward_alone() {
    layers_.evaluate();
    const std::int64_t before = begin();
    Held x = input();
    for (Piece& piece : pieces_) {
      x = forward(piece, std::move(x));
      piece.kept.let_go();
      piece.input = nullptr;
    }
    x = nullptr;
    if (!is_last()) const Held message = layers_.rows_of(width_out());
    return since(before);
  }

  ActionBytes backward_input() {
    const std::int64_t before = begin();
    Held dy;
    if (is_last()) {
      const Held kept = std::exchange(loss_, nullptr);
      dy = is_shared(kept) ? layers_.rows_of(width_out()) : kept;
    } else {
      dy = layers_.rows_of(width_out());
    }
    for (std::size_t p = pieces_.size(); p-- > 0;)
      dy = backward(pieces_[p], std::move(dy), p > 0 || !is_first());
    dy = nullptr;
    if (!is_first()) const Held message = layers_.rows_of(width_in());
    return since(before);
  }

  ActionBytes backward_weight() {
    const std::int64_t before = begin();
    for (std::size_t p = pieces_.size(); p-- > 0;) {
      Piece& piece = pieces_[p];
      for (int l = piece.end; l-- > piece.first;)
        layers_.backward_weight(layer(l), kept_of(piece, l));
      piece.kept.let_go();
    }
    return since(before);
  }

 private:
  std::int64_t begin() {
    meter_.most = meter_.live;
    return meter_.live;
  }
  ActionBytes since(std::int64_t before) const {
    return {meter_.live - before, meter_.most - before};
  }
  const Layer& layer(int index) const { return model_.layers[static_cast<std::size_t>(index)]; }
  bool is_first() const { return stage_.first_layer == 0; }
  bool is_last() const { return stage_.end_layer == static_cast<int>(model_.layers.size()); }
  bool is_cross_entropy() const { return model_.loss == LossKind::SoftmaxCrossEntropy; }
  int width_in() const { return is_first() ? layer(0).in : layer(stage_.first_layer - 1).out; }
  int width_out() const { return layer(stage_.end_layer - 1).out; }
  static Kept& kept_of(Piece& piece, int layer) {
    return piece.kept.of_inner(static_cast<std::size_t>(layer - piece.first));
  }

  Held input() {
    return is_first() && model_.layers.front().kind == LayerKind::Embedding
               ? hold(meter_, layers_.rows() * 4)
               : layers_.rows_of(width_in());
  }

  Held forward(Piece& piece, Held x) {
    const bool is_whole = piece.what == LayerRecompute::Whole;
    if (is_whole) piece.input = x;
    for (int l = piece.first; l < piece.end; ++l) {
      x = layers_.forward(layer(l), std::move(x), kept_of(piece, l), piece.what);
      if (is_whole) kept_of(piece, l).let_go();
    }
    return x;
  }

  Held backward(Piece& piece, Held dy, bool wanted) {
    if (piece.what == LayerRecompute::Whole) {
      Held x = std::exchange(piece.input, nullptr);
      for (int l = piece.first; l < piece.end; ++l)
        x = layers_.forward(layer(l), std::move(x), kept_of(piece, l));
    }
    for (int l = piece.end; l-- > piece.first;)
      dy = layers_.backward_input(layer(l), std::move(dy), kept_of(piece, l),
                                  wanted || l > piece.first, piece.what);
    return dy;
  }

  const Model& model_;
  const StagePlan& stage_;
  HoldMeter meter_;  // before what reports to it
  LayerBuffers layers_;
  std::vector<Piece> pieces_;
  Held loss_;
};

}  // namespace

StageBuffers buffers_of(const Model& model, const StagePlan& stage, int micro_batch_size,
                        std::span<const LayerRecompute> recompute) {
  StageWalk walk(model, stage, micro_batch_size, recompute);
  StageBuffers buffers;
  buffers.f = walk.forward();
  buffers.i = walk.backward_input();
  buffers.w = walk.backward_weight();
  return buffers;
}

ActionBytes forward_alone(const Model& model, const StagePlan& stage, int micro_batch_size,
                          std::span<const LayerRecompute> recompute) {
  return StageWalk(model, stage, micro_batch_size, recompute).forward_alone();
}

}  // namespace pipewright::planner
