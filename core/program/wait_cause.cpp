#include "core/program/wait_cause.hpp"

#include <algorithm>

#include "core/program/lowering.hpp"
#include "core/program/wait_cycle.hpp"

namespace pipewright {
namespace {

using lowering::ByTensor;

/// The lists without their transfers: a computation takes its input directly from the computation
/// that makes it.
class Computations {
 public:
  explicit Computations(const Program& program)
      : program_(program),
        forward_(program.stages, program.micro_batches, kNoInstruction),
        gradient_(forward_),
        sends_{forward_, forward_},
        ended_(program.code.size(), 0) {
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      const Instruction& in = program.code[id];
      note(id, in.kind, in.stage, in.micro_batch);
    }
    for (const auto& [id, second] : program.pairs)
      note(id, second.kind, second.stage.value,
           static_cast<std::uint32_t>(second.micro_batch.value));
  }

  std::vector<WaitStep> cause() {
    find_heads();
    HeadWaits waits;
    for (const InstructionId head : heads_) waits.push_back(waits_of(head));
    const auto cycle = shortest_cycle(waits);
    std::vector<WaitStep> steps;
    for (std::size_t k = 0; k < cycle.size(); ++k) {
      const std::size_t at = cycle[k], next = cycle[(k + 1) % cycle.size()];
      const auto wait = std::find_if(waits[at].begin(), waits[at].end(),
                                     [next](const auto& w) { return w.behind == next; });
      steps.push_back({.rank = program_.rank_of(heads_[at]),
                       .instruction = heads_[at],
                       .waits_for = wait->waits_for,
                       .behind = heads_[next],
                       .through = send_between(wait->waits_for, heads_[at])});
    }
    return steps;
  }

 private:
  struct Input {
    InstructionId producer = kNoInstruction, send = kNoInstruction;
  };

  void note(InstructionId id, ActionKind kind, int stage, std::uint32_t micro_batch) {
    const auto first = [&](ByTensor<InstructionId>& table) {
      InstructionId& slot = table.at(stage, micro_batch);
      if (slot == kNoInstruction) slot = id;
    };
    if (kind == ActionKind::F) first(forward_);
    if (kind == ActionKind::I || kind == ActionKind::B) first(gradient_);
    if (is_send(kind) && !is_call(kind)) first(sends_[kind == ActionKind::SendF ? 0 : 1]);
  }

  /// What an input is, or brings: the computation, and the SEND between.
  Input input_of(InstructionId input) {
    const Instruction& in = program_.code[input];
    if (!is_recv(in.kind)) return {is_transfer(in.kind) ? kNoInstruction : input, kNoInstruction};
    const bool activation = lowering::carries_activation(in.kind);
    const int stage = lowering::producing_stage(in.kind, in.stage);
    return {(activation ? forward_ : gradient_).at(stage, in.micro_batch),
            sends_[activation ? 0 : 1].at(stage, in.micro_batch)};
  }

  /// Inputs that have not ended.
  std::vector<Input> unmet(InstructionId id) {
    std::vector<Input> found;
    const auto want = [&](InstructionId input) {
      if (input == kNoInstruction) return;
      const Input made = input_of(input);
      if (made.producer != kNoInstruction && made.producer != id && ended_[made.producer] == 0)
        found.push_back(made);
    };
    want(program_.code[id].link);
    for (const auto& [self, input] : program_.extra_inputs_of(id)) want(input);
    return found;
  }

  /// Takes every computation that can be taken. Collectives are taken as if alone.
  void find_heads() {
    std::vector<InstructionId> next(program_.rank_begin.begin(), program_.rank_begin.end() - 1);
    const auto skip_transfers = [&](std::size_t r) {
      while (next[r] < program_.rank_begin[r + 1] && is_transfer(program_.code[next[r]].kind))
        ++next[r];
      return next[r] < program_.rank_begin[r + 1];
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < next.size(); ++r) {
        for (; skip_transfers(r) && unmet(next[r]).empty(); ++next[r], moved = true)
          ended_[next[r]] = 1;
      }
    }
    head_of_rank_.assign(next.size(), kNone);
    for (std::size_t r = 0; r < next.size(); ++r) {
      if (!skip_transfers(r)) continue;
      head_of_rank_[r] = heads_.size();
      heads_.push_back(next[r]);
    }
  }

  std::vector<HeadWait> waits_of(InstructionId head) {
    std::vector<HeadWait> waits;
    for (const Input& input : unmet(head)) {
      const auto rank = static_cast<std::size_t>(program_.rank_of(input.producer).value);
      waits.push_back({input.producer, head_of_rank_[rank], head});
    }
    std::sort(waits.begin(), waits.end(),
              [](const auto& a, const auto& b) { return a.waits_for < b.waits_for; });
    return waits;
  }

  InstructionId send_between(InstructionId producer, InstructionId consumer) {
    for (const Input& input : unmet(consumer)) {
      if (input.producer == producer) return input.send;
    }
    return kNoInstruction;
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  const Program& program_;
  ByTensor<InstructionId> forward_, gradient_;
  std::array<ByTensor<InstructionId>, 2> sends_;  // of activations, of gradients
  std::vector<std::uint8_t> ended_;               // by instruction
  std::vector<InstructionId> heads_;              // by rank
  std::vector<std::size_t> head_of_rank_;
};

}  // namespace

std::vector<WaitStep> cause_among_computations(const Program& program) {
  if (!program.transfers_added) return {};
  return Computations(program).cause();
}

}  // namespace pipewright
