// All that a stage is to the ranks that divide its layers with it: those along tp, cp and
// ep, and where its computations pause for them. One thread at a time.
#pragma once

#include <string_view>

#include "core/model/tensor_split.hpp"
#include "exec/base/numerics.hpp"
#include "exec/base/task.hpp"
#include "exec/layers/context_group.hpp"
#include "exec/layers/expert_group.hpp"
#include "exec/layers/pause_point.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec {

class RankGroups {
 public:
  /// This rank's place along each axis, of so many.
  RankGroups(const StageDivision& place, const StageDivision& ranks, Numerics numerics)
      : tensor_(place.tensor, ranks.tensor, numerics, point_),
        experts_(place, ranks, point_),
        context_(place.context, ranks.context, ranks.ring, numerics, point_),
        divides_rows_(ranks.rows && ranks.tensor > 1) {}
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  /// Null where this rank has the layers, or the experts, whole.
  TensorGroup* tensor() { return tensor_.size() > 1 ? &tensor_ : nullptr; }
  ExpertGroup* experts() { return experts_.size() > 1 ? &experts_ : nullptr; }
  /// Null where this rank has whole sequences.
  ContextGroup* context() { return context_.size() > 1 ? &context_ : nullptr; }
  /// Of those along tp and cp.
  const AxisGroup& along(std::string_view axis) const {
    return axis == kTensorAxis ? static_cast<const AxisGroup&>(tensor_) : context_;
  }
  /// Those of tensor() have rows of their own between the layers that they divide.
  bool divides_rows() const { return divides_rows_; }
  /// Ranks see their own rows of a micro-batch alone, and bring together what these add to every
  /// gradient in each W, so that it is rounded as in a serial run.
  bool adds_rows_in_turns() const {
    return context_.size() > 1 && context_.numerics() == Numerics::Exact;
  }
  PausePoint& point() { return point_; }

 private:
  PausePoint point_;
  TensorGroup tensor_;
  ExpertGroup experts_;
  ContextGroup context_;
  const bool divides_rows_;
};

/// Lets a computation on a device that counts go on wherever it pauses; paused(wanted) hears of it.
template <class T, class Paused>
T run_counting(Task<T> task, PausePoint& point, Paused paused) {
  task.start();
  while (!task.has_ended()) {
    const PausePoint::Paused at = point.take_paused();
    paused(at.wanted);
    if (at.wanted.exchange != nullptr && at.wanted.exchange->make_room)
      at.wanted.exchange->make_room();
    at.computation.resume();
  }
  return task.take();
}

}  // namespace pipewright::exec
