// The F, I and W of one layer on buffers without content: the rules of
// planner/memory/stage_buffers.hpp, one layer kind after the other.
#pragma once

#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "planner/memory/held_buffers.hpp"

namespace pipewright::planner {

class LayerBuffers {
 public:
  LayerBuffers(HoldMeter& meter, const Model& model, int micro_batch_size)
      : meter_(meter),
        rows_(std::int64_t{micro_batch_size} * model.sequence),
        sequence_(model.sequence),
        element_(model.bytes_per_element) {}

  /// As exec/layers/layer.hpp's TrainableLayer: takes its share of x, gives the output.
  Held forward(const Layer& layer, Held x, Kept& kept, LayerRecompute what = {});
  /// Empty where nobody wants the gradient of the input.
  Held backward_input(const Layer& layer, Held dy, Kept& kept, bool wanted,
                      LayerRecompute what = {});
  void backward_weight(const Layer& layer, Kept& kept);

  /// From now on an F is that of a run without a backward: batch norms use their running statistics
  /// and keep nothing.
  void evaluate() { evaluates_ = true; }

  std::int64_t rows() const { return rows_; }
  /// An array with `width` elements a row.
  Held rows_of(std::int64_t width) { return hold(meter_, rows_ * width * element_); }

 private:
  Held elements(std::int64_t count) { return hold(meter_, count * element_); }
  Held forward_all(const std::vector<Layer>& layers, Held x, Kept& kept, LayerRecompute what);
  Held backward_all(const std::vector<Layer>& layers, Held dy, Kept& kept, bool wanted,
                    LayerRecompute what);
  Held forward_attention(const Layer& layer, Held x, Kept& kept, LayerRecompute what);
  Held backward_attention(const Layer& layer, Held dy, Kept& kept, bool wanted,
                          LayerRecompute what);
  Held forward_residual(const Layer& layer, Held x, Kept& kept, LayerRecompute what);
  Held backward_residual(const Layer& layer, Held dy, Kept& kept, bool wanted, LayerRecompute what);
  Held forward_graph(const Layer& layer, Held x, Kept& kept, LayerRecompute what);
  Held backward_graph(const Layer& layer, Held dy, Kept& kept, bool wanted, LayerRecompute what);
  void attend(const Layer& layer, Kept& kept);
  Held writable(Held held, std::int64_t width);
  Held scratch_of(const Layer& convolution);
  void add_gradient(Held dx, Held& sum, std::int64_t width);

  HoldMeter& meter_;
  std::int64_t rows_, sequence_, element_;
  bool evaluates_ = false;
};

}  // namespace pipewright::planner
