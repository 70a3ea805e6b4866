// What layers that hold no other layer have in common: the parameters that core/model/weights.hpp
// declares for them, and a fixed number of places for what a micro-batch leaves.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "exec/layers/layer.hpp"
#include "exec/layers/parameters.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {

template <class Base>
class LeafLayerOn : public Base {
 public:
  Saved new_saved() const final { return {std::vector<Buffer>(slots_), {}}; }
  Task<void> backward_weight(Saved& saved) final {
    if (!adds_rows_in_turns_) co_await add_gradients_task(saved);
    let_go(saved);
  }
  void add_own_rows(Saved& saved, const Range& rows) override {
    if (adds_rows_in_turns_) add_rows(saved, rows);
  }
  void collect(std::vector<Parameter*>& parameters) override {
    for (Parameter& parameter : weights_) parameters.push_back(&parameter);
  }

 protected:
  LeafLayerOn(const Layer& layer, const LayerSite& site, std::size_t slots)
      : LeafLayerOn(site, declared_parameters(layer, site), slots) {}
  LeafLayerOn(const LayerSite& site, std::vector<Parameter> weights, std::size_t slots)
      : extent_(site.own_extent()),
        ops_(*site.ops),
        weights_(std::move(weights)),
        adds_rows_in_turns_(site.adds_rows_in_turns),
        slots_(slots) {
    for (Parameter& weight : weights_) weight.sees_own_rows = adds_rows_in_turns_;
  }

  /// Of what stands in front of the layer, or behind it.
  std::size_t words(const Saved& saved, int width) const {
    return saved.rows < 0 ? extent_.words(width)
                          : static_cast<std::size_t>(saved.rows) * static_cast<std::size_t>(width);
  }
  int rows(const Saved& saved) const {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    return saved.rows < 0 ? extent_.rows() : static_cast<int>(std::min(kMost, saved.rows));
  }

  /// What these rows give, to Parameter::of_own_rows of all its weights.
  virtual void add_rows(Saved&, const Range&) {}
  /// W, before what is kept goes.
  virtual void add_gradients(Saved&) {}
  /// The same of a layer that pauses in it.
  virtual Task<void> add_gradients_task(Saved& saved) {
    add_gradients(saved);
    co_return;
  }

  const Extent extent_;  // of what comes in
  TensorOps& ops_;
  std::vector<Parameter> weights_;  // as declared; they stay where they are

 private:
  const bool adds_rows_in_turns_;  // add_own_rows() has added them
  const std::size_t slots_;
};

using LeafLayer = LeafLayerOn<TrainableLayer>;
using PlainLeafLayer = LeafLayerOn<PlainLayer>;

/// A layer whose W needs its input and the gradient of its output: it keeps the one from F on, the
/// other from I on.
class KeepingLayer : public PlainLeafLayer {
 protected:
  Buffer forward_now(Buffer x, Saved& saved) final {
    Buffer y = ops_.take(extent_.words(out_));
    compute(x, y, saved);
    saved.buffers[kX] = std::move(x);
    return y;
  }
  Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) final {
    Buffer dx;
    if (wanted) {
      dx = ops_.take(extent_.words(in_));
      compute_input_gradient(dy, dx, saved);
    }
    saved.buffers[kDy] = std::move(dy);
    return dx;
  }

  enum Slot { kX, kDy, kFirstOwn };

  /// `in` and `out` numbers a row; `own_slots` for what else the layer keeps, from kFirstOwn on.
  KeepingLayer(const Layer& layer, const LayerSite& site, int in, int out,
               std::size_t own_slots = 0)
      : PlainLeafLayer(layer, site, kFirstOwn + own_slots), in_(in), out_(out) {}
  KeepingLayer(const LayerSite& site, std::vector<Parameter> weights, int in, int out)
      : PlainLeafLayer(site, std::move(weights), kFirstOwn), in_(in), out_(out) {}

  virtual void compute(const Buffer& x, Buffer& y, Saved& saved) = 0;
  virtual void compute_input_gradient(const Buffer& dy, Buffer& dx, Saved& saved) = 0;

  const int in_, out_;
};

}  // namespace pipewright::exec
