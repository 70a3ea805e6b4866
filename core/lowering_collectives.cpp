#include <algorithm>
#include <tuple>

#include "core/lowering.hpp"

namespace pipewright::lowering {
namespace {

/// A REDUCE_GRAD, and the computation before it in its list: what the other members wait for.
struct Member {
  int stage = 0, rank = 0;
  int turn = 0;  // the k-th of its stage on its rank
  InstructionId instruction = kNoInstruction, before = kNoInstruction;
};

class Collectives {
 public:
  explicit Collectives(Program& program)
      : program_(program), ranks_(static_cast<std::size_t>(program.ranks())) {}

  void run() {
    collect();
    if (members_.empty()) return;
    mark_computed();
    std::erase_if(members_, [&](const Member& one) { return !computes(one.stage, one.rank); });
    std::sort(members_.begin(), members_.end(), [](const Member& a, const Member& b) {
      return std::tie(a.stage, a.turn, a.rank) < std::tie(b.stage, b.turn, b.rank);
    });
    for (std::size_t begin = 0; begin < members_.size();) {
      std::size_t end = begin + 1;
      while (end < members_.size() && members_[end].stage == members_[begin].stage &&
             members_[end].turn == members_[begin].turn)
        ++end;
      join(begin, end);
      begin = end;
    }
  }

 private:
  void collect() {
    std::vector<int> turns(static_cast<std::size_t>(program_.stages));
    for (int r = 0; r < program_.ranks(); ++r) {
      turns.assign(turns.size(), 0);
      InstructionId before = kNoInstruction;
      for (InstructionId id = program_.rank_begin[static_cast<std::size_t>(r)];
           id < program_.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
        const Instruction& in = program_.code[id];
        if (in.kind == ActionKind::ReduceGrad)
          members_.push_back({in.stage, r, turns[in.stage]++, id, before});
        if (!is_transfer(in.kind)) before = id;
      }
    }
  }

  /// The members [begin, end) are one collective.
  void join(std::size_t begin, std::size_t end) {
    if (end - begin > 1) program_.has_collectives = true;
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t k = begin; k < end; ++k) {
        if (i != k && members_[k].before != kNoInstruction)
          program_.extra_inputs.emplace_back(members_[i].instruction, members_[k].before);
      }
    }
  }

  bool computes(int stage, int rank) const {
    return computes_[static_cast<std::size_t>(stage) * ranks_ + static_cast<std::size_t>(rank)] !=
           0;
  }

  void mark_computed() {
    computes_.assign(static_cast<std::size_t>(program_.stages) * ranks_, 0);
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (InstructionId id = program_.rank_begin[r]; id < program_.rank_begin[r + 1]; ++id) {
        const Instruction& in = program_.code[id];
        if (is_compute(in.kind)) computes_[in.stage * ranks_ + r] = 1;
      }
    }
    for (const auto& [id, second] : program_.pairs) {
      const auto rank = static_cast<std::size_t>(program_.rank_of(id).value);
      computes_[static_cast<std::size_t>(second.stage.value) * ranks_ + rank] = 1;
    }
  }

  Program& program_;
  const std::size_t ranks_;
  std::vector<Member> members_;
  std::vector<std::uint8_t> computes_;  // by stage and rank
};

}  // namespace

void add_collective_inputs(Program& program) { Collectives(program).run(); }

}  // namespace pipewright::lowering
