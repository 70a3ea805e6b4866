// What the ranks of a training make of their gradients together, before an update: sums over the
// replicas of a stage, the sum over a tied table's copies, the norm for clipping (docs/semantics.md
// §3.2). Written once for all devices: a stage says what it brings and takes what comes back. The
// parts travel through the Transport. One thread at a time, the rank's.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/program/program.hpp"
#include "exec/runtime/transport.hpp"
#include "exec/training/gradient_exchange.hpp"
#include "exec/training/gradient_norm.hpp"

namespace pipewright::exec {

/// The gradients of a stage, wherever they lie.
class StageGradients {
 public:
  virtual ~StageGradients() = default;

  /// They become readable, if they are not.
  virtual void settle_gradients() = 0;
  /// Every gradient times this, after it was settled.
  virtual void scale_gradients(float factor) = 0;
  /// The sum of the squares of its gradients, which it settles (of a sharded stage: of its own
  /// part); without meaning where a gradient is no finite number.
  virtual SquareSum squares() = 0;

  /// A copy of the gradients since the last update; no arrays if there are none.
  virtual GradientPart gradient_part() = 0;
  /// The gradients become the sum of the parts, added in the order given; those of experts that of
  /// `of_same_experts`, the parts of replicas that hold the same ones.
  virtual void set_gradients(std::span<const GradientPart* const> parts,
                             std::span<const GradientPart* const> of_same_experts) = 0;
  /// The same where the transport sums on the device: null, and false, where it does not.
  virtual PartPtr part_on_device() { return nullptr; }
  virtual bool takes_from_device(const std::vector<PartPtr>&) { return false; }

  /// Replicas keep a part of the weights each.
  virtual bool is_sharded() const { return false; }
  /// Of the replicas that keep the same part, this one's counts.
  virtual bool counts_part() const { return is_sharded(); }
  /// Holds a table that another stage holds too (exec/layers/tied_head.hpp).
  virtual bool shares_table() const = 0;
  /// What it brings to the sum of the table's gradients: all it has, of a sharded stage its own
  /// part, elsewhere 0.
  virtual GradientPart table_part() = 0;
  /// The table's gradient becomes the sum of the parts, added in the order given.
  virtual void set_table(std::span<const GradientPart* const> parts) = 0;
};

/// Clipping by a device whose ranks reach one another's memory, or whose transport sums on devices,
/// so that no host waits for the norm.
class ClippingOnDevice {
 public:
  virtual ~ClippingOnDevice() = default;

  /// The sum of the squares of these stages' gradients, for the other ranks.
  virtual PartPtr squares(std::span<StageGradients* const> counted) = 0;
  /// All gradients of this rank are scaled so that the norm of what these sums are of, those of
  /// squares() of all ranks or what the transport has made of them, is at most what is allowed.
  /// Tells by the stages' not_finite() of a norm without meaning.
  virtual void clip(const std::vector<PartPtr>& parts) = 0;
};

/// The same of the sums of a table that stages share.
class TyingOnDevice {
 public:
  virtual ~TyingOnDevice() = default;

  /// The sum of these stages' gradients of the table, for the other ranks.
  virtual PartPtr tables(std::span<StageGradients* const> counted) = 0;
  /// The table's gradient becomes, in all stages of this rank, the sum of what these are, those of
  /// tables() of all ranks or what the transport has made of them.
  virtual void take(const std::vector<PartPtr>& parts) = 0;
};

class GradientSums {
 public:
  /// `transport` may be null where the Program has no collectives. All must outlive it.
  /// `experts_differ_along_context`: ranks of another place along cp hold other experts.
  GradientSums(const Program& program, RankId rank, Transport* transport, double clip_grad_norm,
               bool experts_differ_along_context = false);

  /// A stage of this rank. Before the first step, in ascending order.
  void add(StageId id, StageGradients& stage);
  /// The norm is this one's affair from now on; it must outlive this.
  void clip_on(ClippingOnDevice& device) { clipping_ = &device; }
  /// And the same of a tied table.
  void tie_on(TyingOnDevice& device) { tying_ = &device; }
  /// Called with each copy of gradients, or weights, that is made for other ranks.
  void tell_copies_to(std::function<void(const GradientPart&)> told) { told_ = std::move(told); }

  /// This rank's part of a REDUCE_GRAD, REDUCE_TIED or REDUCE_NORM goes to the transport.
  void hand_in(InstructionId member);
  /// The same of a part that the caller has made: an UNSHARD's weights.
  void hand_in(InstructionId member, GradientPart part);
  /// One of them has ended. Its sum is taken by the next take(): as soon as it has ended on a CPU,
  /// by the update that needs it on a GPU.
  void ended(InstructionId member);
  /// The sums of all that have ended become the gradients.
  void take();
  /// After take(): all gradients are scaled so that the norm of the whole model's is at most what
  /// is allowed; does nothing where nothing is.
  void clip();
  /// The sum over a tied table's copies, where all its stages are this rank's.
  void tie_alone();

  /// Why the norm has no meaning, as a clause; empty if it has.
  std::string not_finite() const;

 private:
  struct Own {
    StageId id;
    StageGradients* gradients;
  };

  StageGradients& stage_of(InstructionId member) const;
  bool counts(const Own& own, MicroBatchId first) const;
  std::vector<const GradientPart*> of_same_experts(
      InstructionId member, std::span<const GradientPart* const> parts) const;
  std::vector<StageGradients*> counted() const;
  std::vector<StageGradients*> counted_tables() const;
  PartPtr norm_part();
  SquareSum own_squares();
  GradientPart own_tables();
  void set_tables(std::span<const GradientPart* const> parts);

  const Program& program_;
  const RankId rank_;
  const bool experts_differ_along_context_;
  /// Of the replicas that hold the same parameters, and of those that hold the same experts, too.
  const MicroBatchId first_micro_batch_, first_of_experts_;
  Transport* const transport_;
  const double most_norm_;
  ClippingOnDevice* clipping_ = nullptr;
  TyingOnDevice* tying_ = nullptr;
  std::function<void(const GradientPart&)> told_;
  std::vector<Own> stages_;
  std::vector<InstructionId> reductions_;  // that have ended and wait for the update
  std::optional<InstructionId> norm_;      // the REDUCE_NORM that has ended last
  std::optional<InstructionId> tied_;      // a REDUCE_TIED that has ended and waits for the update
  bool norm_is_finite_ = true;             // as far as it was asked for
};

}  // namespace pipewright::exec
