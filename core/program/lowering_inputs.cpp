#include "core/program/lowering.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace pipewright::lowering {
namespace {

class Inputs {
 public:
  explicit Inputs(Program& program)
      : program_(program), tensors_(program.stages, program.micro_batches, {}) {}

  void run() {
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      note(id, in.kind, in.stage, in.micro_batch);
    }
    for (const auto& [id, second] : program_.pairs) {
      note(id, second.kind, second.stage.value,
           static_cast<std::uint32_t>(second.micro_batch.value));
    }
    for (int r = 0; r < program_.ranks(); ++r) {
      begin_ = program_.rank_begin[static_cast<std::size_t>(r)];
      end_ = program_.rank_begin[static_cast<std::size_t>(r) + 1];
      for (id_ = begin_; id_ < end_; ++id_) resolve_instruction();
      if (program_.has_collectives() && program_.policy.issue == Issue::Stream) resolve_lane();
      resolve_waits();
    }
    std::sort(program_.extra_inputs.begin(), program_.extra_inputs.end());
    program_.extra_inputs.erase(
        std::unique(program_.extra_inputs.begin(), program_.extra_inputs.end()),
        program_.extra_inputs.end());
    for (const auto& [id, input] : program_.extra_inputs)
      program_.code[id].flags |= Instruction::kExtraInput;
  }

 private:
  /// The first that makes or brings it, of each kind.
  struct Tensor {
    InstructionId forward = kNoInstruction, gradient = kNoInstruction;
    InstructionId input_gradient = kNoInstruction;
    InstructionId receive_f = kNoInstruction, receive_b = kNoInstruction;
  };
  using Table = InstructionId Tensor::*;

  void note(InstructionId id, ActionKind kind, int stage, std::uint32_t micro_batch) {
    const auto first = [&](Table t) {
      InstructionId& slot = tensors_.at(stage, micro_batch).*t;
      if (slot == kNoInstruction) slot = id;
    };
    switch (kind) {
      case ActionKind::F:
        return first(&Tensor::forward);
      case ActionKind::B:
        return first(&Tensor::gradient);
      case ActionKind::I:
        first(&Tensor::gradient);
        return first(&Tensor::input_gradient);
      case ActionKind::RecvF:
        return first(&Tensor::receive_f);
      case ActionKind::RecvB:
        return first(&Tensor::receive_b);
      default:
        return;
    }
  }

  void resolve_instruction() {
    Instruction& in = program_.code[id_];
    if (is_transfer(in.kind)) {
      if (in.kind == ActionKind::SendF) later(&Tensor::forward, in.stage, in.micro_batch);
      if (in.kind == ActionKind::SendB) later(&Tensor::gradient, in.stage, in.micro_batch);
      return;
    }
    if (in.kind == ActionKind::Opt || in.kind == ActionKind::ReduceGrad || is_of_all(in.kind))
      return resolve_reduction(in);
    if (is_wait(in.kind)) return;  // resolve_waits()
    if (in.kind == ActionKind::HostSync) return resolve_host_sync(program_.call(in).stream);
    in.link = resolve(in.kind, in.stage, in.micro_batch);
    take_batch(in.link);
    if (!in.has(Instruction::kPair)) return;
    const auto at =
        std::lower_bound(program_.pairs.begin(), program_.pairs.end(), std::pair{id_, Action{}},
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    const InstructionId receive = resolve(at->second.kind, at->second.stage.value,
                                          static_cast<std::uint32_t>(at->second.micro_batch.value));
    if (receive != kNoInstruction) program_.extra_inputs.emplace_back(id_, receive);
    take_batch(receive);
  }

  /// What a joined batch brings is there when all of it has ended (§2.4).
  void take_batch(InstructionId receive) {
    if (receive == kNoInstruction || program_.joined.empty()) return;
    const std::uint32_t batch = program_.batch_of(receive);
    if (batch == kNoBatch) return;
    // The three parts of one batch may alternate; their numbers are neighbours.
    const auto near = [batch](const auto& row) {
      return row.second <= batch + 2 && batch <= row.second + 2;
    };
    const auto& joined = program_.joined;
    auto first = std::lower_bound(joined.begin(), joined.end(), std::pair(receive, batch));
    while (first != joined.begin() && near(*std::prev(first))) --first;
    for (; first != joined.end() && near(*first); ++first) {
      if (first->second == batch && first->first != receive)
        program_.extra_inputs.emplace_back(id_, first->first);
    }
  }

  /// Adds the inputs from this rank that stand later; returns the RECV that brings the one from
  /// another rank.
  InstructionId resolve(ActionKind kind, int stage, std::uint32_t micro_batch) {
    InstructionId receive = kNoInstruction;
    if (kind == ActionKind::F && stage > 0) {
      receive = here(&Tensor::receive_f, stage, micro_batch);
      if (receive == kNoInstruction) later(&Tensor::forward, stage - 1, micro_batch);
    }
    if (kind == ActionKind::I || kind == ActionKind::B) {
      later(&Tensor::forward, stage, micro_batch);
      if (stage + 1 < program_.stages) {
        receive = here(&Tensor::receive_b, stage, micro_batch);
        if (receive == kNoInstruction) later(&Tensor::gradient, stage + 1, micro_batch);
      }
    }
    if (kind == ActionKind::W) later(&Tensor::input_gradient, stage, micro_batch);
    return receive;
  }

  /// REDUCE_GRAD waits for the weight gradients of its stage that stand later, OPT, REDUCE_NORM and
  /// REDUCE_TIED for those of all stages and for the reductions. In an asynchronous order what
  /// stands later is none of theirs, and none of a REDUCE_GRAD's where gradients are divided.
  void resolve_reduction(const Instruction& in) {
    if (program_.asynchronous) return;
    const bool all = in.kind != ActionKind::ReduceGrad;
    if (!all && program_.sharding.divides_gradients()) return;
    const auto weighs = [&](ActionKind kind, int stage) {
      if (kind == ActionKind::ReduceGrad) return all;
      return (kind == ActionKind::W || kind == ActionKind::B) && (all || stage == in.stage);
    };
    for (InstructionId other = id_ + 1; other < end_; ++other) {
      const Cell cell = program_.cell(other);
      if (weighs(cell.action.kind, cell.action.stage.value) ||
          (cell.partner && weighs(cell.partner->kind, cell.partner->stage.value))) {
        program_.extra_inputs.emplace_back(id_, other);
      }
    }
  }

  /// All that has been issued; of a stream its calls. What stands on the compute lane, or before an
  /// earlier HOST_SYNC, has ended anyway.
  void resolve_host_sync(const std::string& stream) {
    for (InstructionId other = id_; other-- > begin_;) {
      const Instruction& in = program_.code[other];
      const bool call = is_call(in.kind);
      if (in.kind == ActionKind::HostSync && program_.call(in).stream.empty()) return;
      if (in.has(Instruction::kOnComputeLane)) continue;
      if (stream.empty() || (call && program_.call(in).stream == stream))
        program_.extra_inputs.emplace_back(id_, other);
    }
  }

  /// The k-th wait of a rank for a SEND, or for a REDUCE_GRAD of a stage, takes the k-th of these
  /// in its list, wherever that stands.
  void resolve_waits() {
    const auto waits = [](const Instruction& in) { return is_wait(in.kind); };
    if (std::none_of(program_.code.data() + begin_, program_.code.data() + end_, waits)) return;
    using Awaited = std::tuple<ActionKind, std::uint16_t, std::uint32_t>;
    std::map<Awaited, std::vector<InstructionId>> awaited;
    std::map<Awaited, std::size_t> turns;
    for (InstructionId id = begin_; id < end_; ++id) {
      const Instruction& in = program_.code[id];
      if (is_send(in.kind) || in.kind == ActionKind::ReduceGrad)
        awaited[{in.kind, in.stage, in.micro_batch}].push_back(id);
    }
    for (InstructionId id = begin_; id < end_; ++id) {
      Instruction& in = program_.code[id];
      if (!is_wait(in.kind)) continue;
      const Awaited key{awaited_kind(in.kind), in.stage, in.micro_batch};
      const auto& found = awaited[key];
      const std::size_t turn = turns[key]++;
      if (turn < found.size()) in.link = found[turn];
    }
  }

  /// The waits of the compute lane for the collective lane: OPT and its collectives, and where
  /// gradients are divided W and B too, wait for the REDUCE_GRADs before them, and the first user
  /// of a stage's weights for its UNSHARDs. What comes later in the compute lane need not wait
  /// again.
  void resolve_lane() {
    std::vector<InstructionId> reductions, unshardings;
    for (id_ = begin_; id_ < end_; ++id_) {
      const Instruction& in = program_.code[id_];
      if (is_of_all(in.kind)) {
        take_all(reductions, [](InstructionId) { return true; });
      } else if (in.in_collective() && !is_call(in.kind)) {
        (in.kind == ActionKind::ReduceGrad ? reductions : unshardings).push_back(id_);
      } else if (in.kind == ActionKind::Opt) {
        take_all(reductions, [](InstructionId) { return true; });
        take_all(unshardings, [](InstructionId) { return true; });
      } else if (is_compute(in.kind) || in.kind == ActionKind::Reshard) {
        const Cell cell = program_.cell(id_);
        if (program_.sharding.divides_gradients() && makes_gradients(cell))
          take_all(reductions, [](InstructionId) { return true; });
        take_all(unshardings, [&](InstructionId one) {
          const StageId stage(program_.code[one].stage);
          return stage == cell.action.stage || (cell.partner && stage == cell.partner->stage);
        });
      }
    }
  }

  static bool makes_gradients(const Cell& cell) {
    const auto makes = [](ActionKind kind) {
      return kind == ActionKind::W || kind == ActionKind::B;
    };
    return makes(cell.action.kind) || (cell.partner && makes(cell.partner->kind));
  }

  template <class Wanted>
  void take_all(std::vector<InstructionId>& open, Wanted wanted) {
    std::erase_if(open, [&](InstructionId one) {
      if (!wanted(one)) return false;
      program_.extra_inputs.emplace_back(id_, one);
      return true;
    });
  }

  InstructionId here(Table t, int stage, std::uint32_t micro_batch) const {
    const InstructionId id = tensors_.at(stage, micro_batch).*t;
    return id >= begin_ && id < end_ ? id : kNoInstruction;
  }
  void later(Table t, int stage, std::uint32_t micro_batch) {
    const InstructionId id = here(t, stage, micro_batch);
    if (id != kNoInstruction && id > id_) program_.extra_inputs.emplace_back(id_, id);
  }

  Program& program_;
  ByTensor<Tensor> tensors_;
  InstructionId id_ = 0, begin_ = 0, end_ = 0;  // the instruction at hand and its rank's range
};

}  // namespace

void find_inputs(Program& program) { Inputs(program).run(); }

}  // namespace pipewright::lowering
