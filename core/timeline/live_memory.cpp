#include "core/timeline/live_memory.hpp"

#include <algorithm>

namespace pipewright {

LiveMemory::LiveMemory(const Program& program, const CostTable& costs, RankId rank,
                       const std::vector<StageId>& stages, bool forward_only)
    : program_(program),
      costs_(costs),
      forward_only_(forward_only),
      divides_(program.sharding.divides_gradients()),
      copies_(std::ranges::any_of(
          costs.memory, [](const StageMemory& stage) { return stage.copied_gradients.value > 0; })),
      versions_(version_changes(program, rank)),
      whole_(program, costs),
      begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
      next_(begin_) {
  if (costs.memory.empty()) return;
  for (const StageId stage : stages) {
    if (const StageMemory* memory = of(stage.value)) bytes_ += memory->constant.value;
  }
  peak_bytes_ = bytes_;
}

void LiveMemory::pass() {
  const Instruction& in = program_.code[next_];
  if (is_compute(in.kind)) {
    run({.kind = in.kind, .stage = StageId(in.stage), .micro_batch = MicroBatchId(in.micro_batch)});
    if (in.has(Instruction::kPair)) run(*program_.cell(next_).partner);
  }
  if (divides_) {
    take(whole_.after(in));
  } else if (copies_) {
    take(copied_by(in));
  }
  const std::size_t at = next_ - begin_;
  for (; next_version_ < versions_.size() && versions_[next_version_].after == at; ++next_version_)
    take(versions_[next_version_]);
  ++next_;
}

void LiveMemory::forget_peaks() {
  peak_activations_ = activations_;
  peak_bytes_ = bytes_;
}

void LiveMemory::run(const Action& action) {
  if (divides_) take(whole_.before(action.kind, action.stage.value));
  take(action);
}

void LiveMemory::take(const Action& a) {
  const StageMemory* memory = of(a.stage.value);
  if (memory != nullptr) peak_bytes_ = std::max(peak_bytes_, bytes_ + memory->within(a.kind).value);
  if (a.kind == ActionKind::F) {
    ++activations_;
    if (memory != nullptr) bytes_ += memory->f.value;
  }
  peak_activations_ = std::max(peak_activations_, activations_);
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  if (forward_only_) return let_go(memory);
  if (a.kind == ActionKind::W || a.kind == ActionKind::B) --activations_;
  if (memory == nullptr) return;
  if (a.kind == ActionKind::I || a.kind == ActionKind::B) bytes_ += memory->i.value;
  if (a.kind == ActionKind::W || a.kind == ActionKind::B) bytes_ += memory->w.value;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
}

/// An older version of the weights that is kept from now on, or no longer.
void LiveMemory::take(const VersionChange& version) {
  if (const StageMemory* memory = of(version.stage))
    bytes_ += version.change * memory->version.value;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
}

/// What other ranks are given of a stage; its copy is kept until the step ends.
std::int64_t LiveMemory::copied_by(const Instruction& in) const {
  if (!in.in_collective() || !has_stage(in.kind)) return 0;
  const StageMemory* memory = of(in.stage);
  if (memory == nullptr) return 0;
  if (in.kind == ActionKind::ReduceGrad) return memory->copied_gradients.value;
  return in.kind == ActionKind::Unshard ? memory->copied_weights.value : 0;
}

/// Of whole arrays that replicas divide otherwise, and of copies.
void LiveMemory::take(std::int64_t bytes) {
  bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
}

/// Without a backward an F keeps nothing after its end.
void LiveMemory::let_go(const StageMemory* memory) {
  --activations_;
  if (memory != nullptr) bytes_ -= memory->f.value;
}

const StageMemory* LiveMemory::of(int stage) const {
  return static_cast<std::size_t>(stage) < costs_.memory.size()
             ? &costs_.memory[static_cast<std::size_t>(stage)]
             : nullptr;
}

}  // namespace pipewright
