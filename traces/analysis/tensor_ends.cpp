#include "traces/analysis/tensor_ends.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace pipewright::traces {
namespace {

/// A tensor that leaves a stage: its activation, or the gradient of its inputs.
struct Tensor {
  std::int32_t stage, micro_batch;
  bool gradient;
  auto operator<=>(const Tensor&) const = default;
};

using Made = std::pair<Tensor, InstructionId>;

void add_made(const Action& a, InstructionId id, std::vector<Made>& made) {
  if (a.kind != ActionKind::F && a.kind != ActionKind::I && a.kind != ActionKind::B) return;
  made.push_back({{a.stage.value, a.micro_batch.value, a.kind != ActionKind::F}, id});
}

/// What each computation of the rank makes, sorted by tensor, then instruction.
std::vector<Made> made_on(const Program& program, int rank) {
  std::vector<Made> made;
  const InstructionId end = program.rank_begin[static_cast<std::size_t>(rank) + 1];
  for (InstructionId id = program.rank_begin[static_cast<std::size_t>(rank)]; id < end; ++id) {
    const Instruction& in = program.code[id];
    if (!is_compute(in.kind)) continue;
    add_made({in.kind, StageId(in.stage), MicroBatchId(in.micro_batch)}, id, made);
    if (in.has(Instruction::kPair)) add_made(*program.cell(id).partner, id, made);
  }
  std::sort(made.begin(), made.end());
  return made;
}

InstructionId maker_of(const std::vector<Made>& made, const Instruction& send) {
  const Tensor wanted{send.stage, static_cast<std::int32_t>(send.micro_batch),
                      send.kind == ActionKind::SendB};
  const auto found = std::lower_bound(made.begin(), made.end(), Made{wanted, 0});
  return found != made.end() && found->first == wanted ? found->second : kNoInstruction;
}

}  // namespace

TensorEnds tensor_ends_of(const Program& program) {
  const std::size_t n = program.code.size();
  TensorEnds carried{std::vector<InstructionId>(n, kNoInstruction),
                     std::vector<InstructionId>(n, kNoInstruction)};
  for (int r = 0; r < program.ranks(); ++r) {
    std::vector<Made> made;
    bool listed = false;
    const InstructionId end = program.rank_begin[static_cast<std::size_t>(r) + 1];
    for (InstructionId id = program.rank_begin[static_cast<std::size_t>(r)]; id < end; ++id) {
      const Instruction& in = program.code[id];
      if (!is_send(in.kind) || is_call(in.kind)) continue;
      if (!listed) made = made_on(program, r);
      listed = true;
      carried.producer[id] = maker_of(made, in);
      if (in.link != kNoInstruction) carried.producer[in.link] = carried.producer[id];
    }
  }
  const auto used = [&](InstructionId input, InstructionId user) {
    if (input == kNoInstruction || !is_recv(program.code[input].kind)) return;
    carried.consumer[input] = user;
    const InstructionId send = program.code[input].link;
    if (send != kNoInstruction) carried.consumer[send] = user;
  };
  for (InstructionId id = 0; id < n; ++id) {
    if (is_compute(program.code[id].kind)) used(program.code[id].link, id);
  }
  for (const auto& [id, input] : program.extra_inputs) {
    const ActionKind kind = program.code[id].kind;
    if (!is_transfer(kind) && !is_call(kind)) used(input, id);
  }
  return carried;
}

}  // namespace pipewright::traces
