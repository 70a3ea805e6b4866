#include "exec/layers/divided/divided_parts.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/model/tensor_split.hpp"
#include "core/order/devices.hpp"
#include "exec/layers/divided/divided_loss.hpp"
#include "exec/layers/divided/row_gradients.hpp"
#include "exec/layers/metered_layers.hpp"
#include "exec/layers/rank_groups.hpp"
#include "exec/layers/stage_layers.hpp"

namespace pipewright::exec {
namespace {

/// So many parts of an action's operations a weight tells apart.
constexpr double kWeightOfAll = 1e9;

struct Counted {
  double operations = 0;
  Call call;  // of a sum over ranks; of a computation its name alone
  bool is_call = false, beside = false;
};

/// The layer that asks for something, without the ones that hold it: "1.attention".
std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

class CountedStage {
 public:
  CountedStage(const Model& model, int first, int end, int micro_batch_size,
               std::span<const LayerRecompute> recompute, const StageDivision& ranks,
               Numerics numerics, RunMode mode)
      : extent_(extent_of_rank(model, micro_batch_size, ranks)),
        is_first_(first == 0),
        has_loss_(end == static_cast<int>(model.layers.size()) && mode != RunMode::Predict),
        divides_logits_(has_loss_ && vocabulary_split(model, ranks.tensor).head),
        reads_ids_(is_first_ && width_in_front_of(model, 0) == 0),
        width_in_(width_in_front_of(model, first)),
        width_out_(width_in_front_of(model, end)),
        ops_(model.bytes_per_element),
        groups_(kFirstPlace, ranks, numerics),
        layers_(make_metered_layers(model, first, end, extent_, ops_, recompute, &groups_)),
        row_gradients_(layers_, groups_, ops_, extent_) {
    for (const auto& layer : layers_) saved_.push_back(layer->new_saved());
  }

  std::vector<Counted> forward() { return parts_of(forward_task()); }
  std::vector<Counted> backward_input() { return parts_of(backward_task()); }
  std::vector<Counted> backward_weight() { return parts_of(weight_task()); }

 private:
  Task<void> forward_task() {
    Buffer x = reads_ids_ ? ops_.take_ids(extent_.words(1)) : ops_.take(extent_.words(width_in_));
    for (std::size_t l = 0; l < layers_.size(); ++l)
      x = co_await layers_[l]->forward(std::move(x), saved_[l]);
    if (divides_logits_)
      co_await bring_logits_together(ops_, *groups_.tensor(), extent_.rows(), unknown_logits());
    if (has_loss_ && groups_.context() != nullptr)
      co_await bring_losses_together(ops_, *groups_.context(), extent_.rows(), {});
  }
  Task<void> backward_task() {
    Buffer dy = ops_.take(extent_.words(width_out_));
    for (std::size_t l = layers_.size(); l-- > 0;)
      dy = co_await layers_[l]->backward_input(std::move(dy), saved_[l], l > 0 || !is_first_);
  }

  Task<void> weight_task() {
    const Buffer sums = co_await row_gradients_.bring_together(saved_);
    for (std::size_t l = layers_.size(); l-- > 0;) co_await layers_[l]->backward_weight(saved_[l]);
  }

  std::vector<Counted> parts_of(Task<void> task) {
    std::vector<Counted> parts;
    double before = ops_.operations();
    const auto computed = [&](const std::string& name) {
      const double now = ops_.operations();
      parts.push_back(
          {now - std::exchange(before, now), {.kind = ActionKind::Part, .data = name}, false});
    };
    std::string name;
    run_counting(std::move(task), groups_.point(), [&](const Wanted& wanted) {
      if (!wanted) return computed(name);  // beside the call before
      Call call = call_for(wanted);
      name = last_name(call.data);
      computed(name);
      parts.push_back({0, std::move(call), true, is_beside(wanted)});
    });
    computed("end");
    return parts;
  }

  const Extent extent_;
  const bool is_first_, has_loss_, divides_logits_, reads_ids_;
  const int width_in_, width_out_;
  MeteredOps ops_;  // before what holds its buffers
  RankGroups groups_;
  std::vector<std::unique_ptr<TrainableLayer>> layers_;
  RowGradients row_gradients_;
  std::vector<Saved> saved_;  // by layer
};

ActionParts weighed(ActionKind kind, const std::vector<Counted>& counted) {
  double all = 0;
  for (const Counted& one : counted) all += one.operations;
  ActionParts action{.stage = {}, .kind = kind, .parts = {}};
  for (const Counted& one : counted) {
    const auto weight = all > 0 ? std::llround(one.operations / all * kWeightOfAll) : 0;
    action.parts.push_back(
        {one.call, one.is_call ? 0 : std::max<std::int64_t>(1, weight), one.beside});
  }
  return action;
}

}  // namespace

Call call_for(const Wanted& wanted) {
  const auto call = [](ActionKind kind, std::string_view group, const auto& what) {
    return Call{.kind = kind,
                .group = std::string(group),
                .data = what.what,
                .shape = {{what.rows, what.width}},
                .dtype = "float32"};
  };
  if (wanted.ring != nullptr) {
    Call sent = call(ActionKind::RingSend, wanted.axis, *wanted.ring);
    sent.shape->back() *= static_cast<std::int64_t>(wanted.ring->arrays.size());
    return sent;
  }
  if (wanted.exchange != nullptr) return call(ActionKind::AllToAll, wanted.axis, *wanted.exchange);
  if (wanted.rows != nullptr) return call(ActionKind::AllGather, wanted.axis, *wanted.rows);
  return call(wanted.sum->scatters ? ActionKind::ReduceScatter : ActionKind::AllReduce, wanted.axis,
              *wanted.sum);
}

bool is_beside(const Wanted& wanted) { return wanted.ring != nullptr && wanted.ring->beside; }

std::vector<MeshAxis> axes_of(const StageDivision& ranks) {
  std::vector<MeshAxis> axes{{std::string(kTensorAxis), ranks.tensor},
                             {std::string(kContextAxis), ranks.context},
                             {std::string(kExpertAxis), ranks.experts}};
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.devices == 1; });
  return axes;
}

int members_of(const StageDivision& ranks, const Call& call) {
  const auto group = span_of(axes_of(ranks), call.group);
  PIPEWRIGHT_ASSERT(group, "a call of a group that no ranks are");
  return group->devices;
}

std::vector<ActionParts> divided_parts(const Model& model, int first, int end, int micro_batch_size,
                                       std::span<const LayerRecompute> recompute,
                                       const StageDivision& ranks, Numerics numerics,
                                       RunMode mode) {
  CountedStage stage(model, first, end, micro_batch_size, recompute, ranks, numerics, mode);
  if (mode != RunMode::Train) {
    const std::vector<Counted> f = stage.forward();
    if (f.size() == 1) return {};
    return {weighed(ActionKind::F, f)};
  }
  const std::vector<Counted> f = stage.forward(), i = stage.backward_input(),
                             w = stage.backward_weight();
  if (f.size() == 1 && i.size() == 1 && w.size() == 1) return {};
  std::vector<Counted> b = i;
  b.back().operations += w.front().operations;
  b.insert(b.end(), w.begin() + 1, w.end());
  std::vector<ActionParts> all = {weighed(ActionKind::F, f), weighed(ActionKind::I, i),
                                  weighed(ActionKind::B, b)};
  if (w.size() > 1) all.push_back(weighed(ActionKind::W, w));
  return all;
}

std::vector<ActionParts> divided_parts(const Model& model, std::span<const StagePlan> stages,
                                       int micro_batch_size,
                                       std::span<const LayerRecompute> recompute,
                                       const StageDivision& ranks, Numerics numerics,
                                       RunMode mode) {
  std::vector<ActionParts> all;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (ActionParts& action : divided_parts(model, stages[s].first_layer, stages[s].end_layer,
                                             micro_batch_size, recompute, ranks, numerics, mode)) {
      action.stage = StageId(static_cast<std::int64_t>(s));
      all.push_back(std::move(action));
    }
  }
  return all;
}

}  // namespace pipewright::exec
