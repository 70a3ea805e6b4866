// A layer of a model that can be trained: its parameters, its gradient, and its F, I and W. Built
// from core/model/model.hpp's description; a Residual or Sequential holds others. Written once for
// all devices: what computes, and where, says exec/layers/tensor_ops.hpp.
//
// A TrainableLayer owns its parameters and borrows the TensorOps. What F keeps for I and W lies in
// a Saved that the caller owns, one for each micro-batch under way, so any number of micro-batches
// may be in flight. A layer, its operators and its Saveds belong to one thread at a time.
// Widths are floats a row; width 0 in front of a layer means token ids instead of floats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/context_split.hpp"
#include "core/model/find_layer.hpp"
#include "core/model/row_parts.hpp"
#include "core/model/tensor_split.hpp"
#include "core/model/weights.hpp"
#include "exec/base/buffer.hpp"
#include "exec/base/task.hpp"

namespace pipewright::exec {

/// One array of weights.
struct Parameter {
  std::string name;     // unique in the model: "2.block1/1.residual/0.up/weight"
  bool decays = false;  // weight decay applies to matrices only
  /// Empty until somebody who trains it allocates them (exec/layers/parameters.hpp).
  AlignedFloats value, gradient;
  /// The elements that the two begin with: not 0 where a replica holds a part of them alone
  /// (exec/training/shard.hpp).
  std::size_t first_value = 0, first_gradient = 0;
  /// Where a device keeps the two out of the host's reach; null: they are `value` and `gradient`.
  /// Valid as long as that device's parameters.
  float *device_value = nullptr, *device_gradient = nullptr;
  /// A running statistic: gradients are summed as a weight's, but the layer's update_statistics()
  /// uses them, not the optimizer; they do not count for clipping.
  bool is_statistic = false;
  /// Two layers of the model use it (exec/layers/tied_head.hpp).
  bool is_tied = false;
  /// It is another stage's too: there it counts, for clipping and in checkpoints.
  bool is_copy = false;
  /// Replicas that hold other experts have it too, and the first of them counts in the same way,
  /// unless replicas share it out.
  bool is_replicas_copy = false;
  Weight start;  // as the layer declares it, but for the name; `size` is this part's
  Slice slice;   // which elements of the layer's whole array these are

  /// Its elements belong to the experts that this rank holds, to which rows of other ranks come.
  bool is_of_experts = false;
  /// Its rank sees its own rows of a micro-batch alone: what these add goes here until the ranks
  /// have brought it together (exec/layers/divided/row_gradients.hpp).
  bool sees_own_rows = false;
  float* of_own_rows = nullptr;
  /// So many arrays one after another, what each holds a summand of its own: of experts, to which
  /// the rows of as many micro-batches come.
  int summands = 1;
  /// Between what several micro-batches add to the gradient in one W; set by whoever keeps the
  /// gradients of each micro-batch apart.
  std::function<void()> next_summand;

  /// For the operators of the device that trains it.
  const float* weights() const { return device_value != nullptr ? device_value : value.data(); }
  /// Of a statistic, which are floats on any device.
  float* values() { return device_value != nullptr ? device_value : value.data(); }
  float* gradients() { return device_gradient != nullptr ? device_gradient : gradient.data(); }
};

/// The token table of a model with a tied head.
struct SharedTable {
  std::string path;                // of the embedding
  Parameter* parameter = nullptr;  // the embedding's, once it was made
};

/// What one layer keeps of one micro-batch: after F what I and W need, after I what W needs, after
/// W nothing. Its shape is made by TrainableLayer::new_saved().
struct Saved {
  std::vector<Buffer> buffers;
  std::vector<Saved> inner;
  /// Of a layer behind a router, which decides how many rows come; negative: all of the
  /// micro-batch.
  std::int64_t rows = -1;
  /// Of a mixture of experts, where the rows of each expert begin among those that it sends; of
  /// what stands behind it, among those that have come.
  std::shared_ptr<const std::vector<std::int32_t>> begins = {};
};

/// Drops what is kept, and keeps its shape.
inline void let_go(Saved& saved) {
  for (Buffer& buffer : saved.buffers) buffer.reset();
  for (Saved& inner : saved.inner) let_go(inner);
}

/// The size of a micro-batch.
struct Extent {
  int samples = 1;
  int sequence = 1;  // rows of a sample

  /// At most the largest int: what is computed has fewer, what is only counted may have more.
  int rows() const {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    return static_cast<int>(std::min(kMost, std::int64_t{samples} * sequence));
  }
  std::size_t words(int width) const {
    return static_cast<std::size_t>(samples) * static_cast<std::size_t>(sequence) *
           static_cast<std::size_t>(width);
  }
};

/// Of so many rows, which need not be all of a micro-batch.
inline std::size_t words_of(std::int64_t rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
}

class TrainableLayer {
 public:
  virtual ~TrainableLayer() = default;

  virtual Saved new_saved() const = 0;
  /// F: takes its share of x, returns the output. Pauses where ranks that divide the layer have to
  /// bring something together (exec/layers/tensor_group.hpp); `saved` stays where it is meanwhile.
  virtual Task<Buffer> forward(Buffer x, Saved& saved) = 0;
  /// I: from the gradient of the output to that of the input. Where nobody wants the latter (the
  /// model's first layer) it is not computed and the result is empty. Pauses as F does.
  virtual Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) = 0;
  /// W: adds this micro-batch's part to the gradients and empties `saved`. Pauses as F does.
  virtual Task<void> backward_weight(Saved& saved) = 0;
  /// Before add_own_rows(), where others along tp have rows of what it keeps for W, too: they come
  /// together in `saved`. Pauses as F does.
  virtual Task<void> gather_kept_rows(Saved&) { co_return; }
  /// Before W, which leaves these out: adds what these of its rows give to Parameter::of_own_rows.
  virtual void add_own_rows(Saved&, const Range&) {}
  /// Appends its parameters in a fixed order; the pointers live as long as the layer.
  virtual void collect(std::vector<Parameter*>& parameters) = 0;

  /// Of layers with running statistics, and of layers that hold others. Called with each update,
  /// when all gradients are there.
  virtual void update_statistics() {}
  /// From now on F does not train: running statistics take the place of the micro-batch's own, and
  /// nothing needs to be kept. Until it is called again.
  virtual void set_evaluating(bool) {}
  /// Of layers with losses of their own, and of layers that hold others: the part that a
  /// micro-batch's losses have in what is minimised. 1 until it is called.
  virtual void set_loss_share(double) {}
};

/// A layer that never pauses.
class PlainLayer : public TrainableLayer {
 public:
  Task<Buffer> forward(Buffer x, Saved& saved) final { co_return forward_now(std::move(x), saved); }
  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) final {
    co_return backward_input_now(std::move(dy), saved, wanted);
  }

 protected:
  virtual Buffer forward_now(Buffer x, Saved& saved) = 0;
  virtual Buffer backward_input_now(Buffer dy, Saved& saved, bool wanted) = 0;
};

struct LayerFactory;  // exec/layers/own_layer.hpp
class ContextGroup;   // exec/layers/context_group.hpp
class ExpertGroup;    // exec/layers/expert_group.hpp
class TensorGroup;    // exec/layers/tensor_group.hpp
class TensorOps;      // exec/layers/tensor_ops.hpp

/// What a layer needs to be built.
struct LayerSite {
  Extent extent;  // with this rank's rows of a sample, where ranks have some of them each
  TensorOps* ops = nullptr;
  std::uint64_t seed = 1;
  std::string
      path;       // of the layer in the model; the initial weights depend on it and the seed only
  int width = 0;  // in front of it
  const LayerFactory* factory = nullptr;  // who makes a user's own layers
  bool recomputes_attention = false;      // core/model/recompute.hpp: selective
  SharedTable* shared_table = nullptr;    // null: nothing in the model is tied
  /// The ranks that divide the layers among them; null: this one has them whole.
  TensorGroup* tensor = nullptr;
  /// The ranks that divide the experts among them; null: this one has all of them.
  ExpertGroup* experts = nullptr;
  /// The ranks that have a part of every sequence each; null: this one has whole ones.
  ContextGroup* context = nullptr;
  Split split =
      Split::Whole;  // of a linear layer, or of a token table (core/model/tensor_split.hpp)
  std::vector<Range> columns;  // of one that is split by them: ranges that are divided each
  bool ends_divided = false;   // it is, or ends in, a linear layer that ranks divide by columns
  int parts_in = 1;            // ranks have a part each of what comes in
  /// Outside of what `tensor` divides, ranks have rows of their own (sequence parallelism).
  bool divides_rows = false;
  /// What a rank's rows add to any gradient is brought together with the others' in W.
  bool adds_rows_in_turns = false;

  /// What comes in here.
  int own_width() const { return width / parts_in; }
  Extent own_extent() const;
  ContextPlace context_place() const;
  /// Which rows of the micro-batch a layer has here that stays on its rank's own.
  RowParts row_parts() const;
};

/// Of a layer whose output ranks divide: it is linear, or ends in one that is.
inline void divide_end(const Layer& layer, LayerSite& site) {
  site.ends_divided = true;
  if (layer.kind != LayerKind::Linear) return;
  site.split = Split::Columns;
  site.columns = {{0, layer.out}};
}

/// Throws InputError that names the layer if it does not fit what is in front of it.
std::unique_ptr<TrainableLayer> make_layer(const Layer& layer, const LayerSite& site);

/// Width after a layer that has `width` in front; throws InputError as make_layer() does.
int width_after(const Layer& layer, int width, const std::string& path);
/// Width in front of a layer, as it says itself: that of a model's first one.
int width_before(const Layer& layer);
/// Width in front of the model's layer `index` (layers.size(): after the last).
int width_in_front_of(const Model& model, int index);

}  // namespace pipewright::exec
