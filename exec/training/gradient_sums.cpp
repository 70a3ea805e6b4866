#include "exec/training/gradient_sums.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "core/order/devices.hpp"

namespace pipewright::exec {

GradientSums::GradientSums(const Program& program, RankId rank, Transport* transport,
                           double clip_grad_norm, bool experts_differ_along_context)
    : program_(program),
      rank_(rank),
      experts_differ_along_context_(experts_differ_along_context),
      first_micro_batch_(first_micro_batch(program.devices, rank, program.micro_batches)),
      first_of_experts_(first_micro_batch_of_experts(program.devices, rank, program.micro_batches,
                                                     experts_differ_along_context)),
      transport_(transport),
      most_norm_(clip_grad_norm) {
  PIPEWRIGHT_ASSERT(transport != nullptr || !program.has_collectives(),
                    "replicas without a transport for their gradients");
}

void GradientSums::add(StageId id, StageGradients& stage) { stages_.push_back({id, &stage}); }

StageGradients& GradientSums::stage_of(InstructionId member) const {
  const StageId wanted(program_.code[member].stage);
  const auto own = std::find_if(stages_.begin(), stages_.end(),
                                [&](const Own& one) { return one.id == wanted; });
  PIPEWRIGHT_ASSERT(own != stages_.end(), "a sum of a stage that this rank does not hold");
  return *own->gradients;
}

void GradientSums::hand_in(InstructionId member) {
  switch (program_.code[member].kind) {
    case ActionKind::ReduceNorm:
      take();
      return transport_->contribute(rank_, member, norm_part());
    case ActionKind::ReduceTied:
      take();
      if (tying_ == nullptr) return hand_in(member, own_tables());
      return transport_->contribute(rank_, member, tying_->tables(counted_tables()));
    default: {
      StageGradients& stage = stage_of(member);
      PartPtr part = stage.part_on_device();
      if (part == nullptr) return hand_in(member, stage.gradient_part());
      transport_->contribute(rank_, member, std::move(part));
    }
  }
}

void GradientSums::hand_in(InstructionId member, GradientPart part) {
  if (told_) told_(part);
  transport_->contribute(rank_, member, std::make_shared<GradientMessage>(std::move(part)));
}

void GradientSums::ended(InstructionId member) {
  switch (program_.code[member].kind) {
    case ActionKind::ReduceNorm:
      norm_ = member;
      return;
    case ActionKind::ReduceTied:
      tied_ = member;
      return;
    default:
      reductions_.push_back(member);
      if (program_.sharding.divides_gradients()) take();  // the whole gradients shall go
  }
}

void GradientSums::take() {
  for (const InstructionId member : std::exchange(reductions_, {})) {
    const std::vector<PartPtr> messages = transport_->gathered(rank_, member);
    StageGradients& stage = stage_of(member);
    if (stage.takes_from_device(messages)) continue;
    std::vector<GradientPart> arrived;
    const auto parts = parts_of(messages, arrived);
    stage.set_gradients(parts, of_same_experts(member, parts));
  }
  const auto tied = std::exchange(tied_, std::nullopt);
  if (!tied) return;
  const std::vector<PartPtr> messages = transport_->gathered(rank_, *tied);
  if (tying_ != nullptr) return tying_->take(messages);
  std::vector<GradientPart> arrived;
  set_tables(parts_of(messages, arrived));
}

std::vector<const GradientPart*> GradientSums::of_same_experts(
    InstructionId member, std::span<const GradientPart* const> parts) const {
  const auto experts_of = [&](RankId rank) {
    return place_of_experts(program_.devices, rank, experts_differ_along_context_);
  };
  std::vector<const GradientPart*> same;
  const auto& members = program_.collectives[program_.code[member].route].members;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (experts_of(members[i].rank) == experts_of(rank_)) same.push_back(parts[i]);
  }
  return same;
}

/// Replicas have the same gradients by now, and the one with the first micro-batch counts them; of
/// a sharded stage each of its group counts its own part. Devices that divide a stage are no
/// replicas of one another.
bool GradientSums::counts(const Own& own, MicroBatchId first) const {
  if (own.gradients->is_sharded()) return own.gradients->counts_part();
  return program_.placement.rank_of(own.id, first) == rank_;
}

std::vector<StageGradients*> GradientSums::counted() const {
  std::vector<StageGradients*> stages;
  for (const Own& own : stages_) {
    if (counts(own, first_of_experts_)) stages.push_back(own.gradients);
  }
  return stages;
}

/// Nobody asks for the norm where nothing is clipped.
PartPtr GradientSums::norm_part() {
  const bool clips = most_norm_ > 0;
  if (clipping_ != nullptr)
    return clipping_->squares(clips ? counted() : std::vector<StageGradients*>{});
  return std::make_shared<NormMessage>(clips ? own_squares() : SquareSum{});
}

SquareSum GradientSums::own_squares() {
  SquareSum sum;
  for (StageGradients* stage : counted()) {
    if (sum.add(stage->squares())) continue;
    norm_is_finite_ = false;
    return {};
  }
  return sum;
}

void GradientSums::clip() {
  if (most_norm_ <= 0) {
    if (const auto unused = std::exchange(norm_, std::nullopt))
      static_cast<void>(transport_->gathered(rank_, *unused));
    return;
  }
  // Without a REDUCE_NORM there is no other rank.
  if (clipping_ != nullptr) {
    return clipping_->clip(norm_ ? transport_->gathered(rank_, *norm_)
                                 : std::vector<PartPtr>{clipping_->squares(counted())});
  }
  const std::optional<SquareSum> squares =
      norm_ ? total_of(transport_->gathered(rank_, *norm_)) : own_squares();
  if (!squares) norm_is_finite_ = false;
  const float factor = squares ? clip_factor(squares->norm(), most_norm_) : 0;
  for (const Own& own : stages_) {
    own.gradients->settle_gradients();
    own.gradients->scale_gradients(factor);
  }
}

std::vector<StageGradients*> GradientSums::counted_tables() const {
  std::vector<StageGradients*> stages;
  for (const Own& own : stages_) {
    if (own.gradients->shares_table() && counts(own, first_micro_batch_))
      stages.push_back(own.gradients);
  }
  return stages;
}

GradientPart GradientSums::own_tables() {
  GradientPart all;
  for (StageGradients* stage : counted_tables()) {
    GradientPart one = stage->table_part();
    std::move(one.gradients.begin(), one.gradients.end(), std::back_inserter(all.gradients));
    std::move(one.sums.begin(), one.sums.end(), std::back_inserter(all.sums));
  }
  return all;
}

void GradientSums::tie_alone() {
  take();
  if (tying_ != nullptr) return tying_->take({tying_->tables(counted_tables())});
  const GradientPart own = own_tables();
  const GradientPart* const parts[] = {&own};
  set_tables(parts);
}

void GradientSums::set_tables(std::span<const GradientPart* const> parts) {
  for (const Own& own : stages_) {
    if (own.gradients->shares_table()) own.gradients->set_table(parts);
  }
}

std::string GradientSums::not_finite() const {
  return norm_is_finite_ ? "" : "the norm of the gradients is beyond 2e12";
}

}  // namespace pipewright::exec
