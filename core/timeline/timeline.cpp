#include "core/timeline/timeline.hpp"

#include <algorithm>

#include "core/order/forward_order.hpp"
#include "core/order/stages_by_rank.hpp"
#include "core/program/version_changes.hpp"
#include "core/timeline/whole_arrays.hpp"

namespace pipewright {
namespace {

/// Live activations and bytes of one rank along its compute lane (docs/semantics.md §6).
class Live {
 public:
  Live(const std::vector<StageId>& stages, const CostTable& costs, bool forward_only)
      : costs_(costs), forward_only_(forward_only) {
    if (costs.memory.empty()) return;
    for (const StageId stage : stages) {
      if (const StageMemory* memory = of(stage.value)) bytes_ += memory->constant.value;
    }
    peak_bytes_ = bytes_;
  }

  void take(const Action& a) {
    const StageMemory* memory = of(a.stage.value);
    if (memory != nullptr)
      peak_bytes_ = std::max(peak_bytes_, bytes_ + memory->within(a.kind).value);
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
  void take(const VersionChange& version) {
    if (const StageMemory* memory = of(version.stage))
      bytes_ += version.change * memory->version.value;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
  }

  /// Of whole arrays that replicas divide otherwise.
  void take(std::int64_t bytes) {
    bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
  }

  int peak_activations() const { return peak_activations_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  /// Without a backward an F keeps nothing after its end.
  void let_go(const StageMemory* memory) {
    --activations_;
    if (memory != nullptr) bytes_ -= memory->f.value;
  }

  const StageMemory* of(int stage) const {
    return static_cast<std::size_t>(stage) < costs_.memory.size()
               ? &costs_.memory[static_cast<std::size_t>(stage)]
               : nullptr;
  }

  const CostTable& costs_;
  const bool forward_only_;
  int activations_ = 0, peak_activations_ = 0;
  std::int64_t bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace

std::vector<RankFigures> peaks_of(const Program& program, const CostTable& costs) {
  std::vector<RankFigures> ranks(static_cast<std::size_t>(program.ranks()));
  const bool forward_only = is_forward_only(program);
  const bool divides = program.sharding.divides_gradients();
  const auto stages = stages_by_rank(program.placement, program.micro_batches);
  for (int r = 0; r < program.ranks(); ++r) {
    Live live(stages[static_cast<std::size_t>(r)], costs, forward_only);
    const std::vector<VersionChange> versions = version_changes(program, RankId(r));
    auto version = versions.begin();
    WholeArrays whole(program, costs);
    const auto take = [&](const Action& a) {
      if (divides) live.take(whole.before(a.kind, a.stage.value));
      live.take(a);
    };
    const auto code = program.rank_code(RankId(r));
    for (const Instruction& in : code) {
      if (is_compute(in.kind)) {
        take({.kind = in.kind,
              .stage = StageId(in.stage),
              .micro_batch = MicroBatchId(in.micro_batch)});
        const auto id = static_cast<InstructionId>(&in - program.code.data());
        if (in.has(Instruction::kPair)) take(*program.cell(id).partner);
      }
      if (divides) live.take(whole.after(in));
      const auto at = static_cast<std::size_t>(&in - code.data());
      for (; version != versions.end() && version->after == at; ++version) live.take(*version);
    }
    ranks[static_cast<std::size_t>(r)].peak_activations = live.peak_activations();
    ranks[static_cast<std::size_t>(r)].peak_bytes = live.peak_bytes();
  }
  return ranks;
}

Figures figures_of(const Program& program, const Timeline& timeline, const CostTable& costs) {
  Figures figures;
  figures.ranks = peaks_of(program, costs);
  figures.makespan_ns = timeline.makespan_ns;
  std::int64_t busy = 0;
  const RankFigures* longest = nullptr;
  for (int r = 0; r < program.ranks(); ++r) {
    RankFigures& rank = figures.ranks[static_cast<std::size_t>(r)];
    bool first = true;
    for (InstructionId id = program.rank_begin[static_cast<std::size_t>(r)];
         id < program.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
      const Instruction& in = program.code[id];
      if (in.is_communication() || is_wait(in.kind) || is_call(in.kind) ||
          timeline.end[id] == kNotEnded)
        continue;
      rank.busy_ns += timeline.end[id] - timeline.start[id];
      if (first) rank.first_start_ns = timeline.start[id];
      first = false;
      rank.last_end_ns = timeline.end[id];
    }
    rank.span_ns = rank.last_end_ns - rank.first_start_ns;
    busy += rank.busy_ns;
    if (longest == nullptr || rank.span_ns > longest->span_ns) longest = &rank;
  }
  const double whole = static_cast<double>(figures.makespan_ns) * program.ranks();
  figures.bubble_ratio = whole > 0 ? 1.0 - static_cast<double>(busy) / whole : 0.0;
  if (longest != nullptr && longest->span_ns > 0) {
    figures.span_bubble_ratio =
        1.0 - static_cast<double>(longest->busy_ns) / static_cast<double>(longest->span_ns);
  }
  return figures;
}

}  // namespace pipewright
