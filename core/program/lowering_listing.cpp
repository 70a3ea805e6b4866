#include "core/program/lowering.hpp"

#include <algorithm>

namespace pipewright::lowering {
namespace {

constexpr std::int32_t kNobody = -1;

class Listing {
 public:
  explicit Listing(const Order& order)
      : order_(order),
        activation_(order.stages(), order.micro_batches, 0),
        gradient_(order.stages(), order.micro_batches, 0) {
    draft_.ranks.resize(order.ranks.size());
    for (const auto& row : order.ranks) {
      for (const Cell& cell : row) {
        versioned_ |= cell.action.version >= 0 || (cell.partner && cell.partner->version >= 0);
      }
    }
    if (versioned_) draft_.versions.resize(order.ranks.size());
  }

  Draft make() {
    if (order_.has_transfers()) {
      as_written();
    } else {
      with_transfers_added();
    }
    return std::move(draft_);
  }

 private:
  void as_written() {
    InstructionId batch = 0;
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      draft_.ranks[r].reserve(order_.ranks[r].size());
      bool inside = false;  // a batch that the cell before has begun
      for (const Cell& cell : order_.ranks[r]) {
        if (cell.action.kind == ActionKind::Idle) continue;
        append(r, cell);
        if (!is_transfer(cell.action.kind) || (!inside && !cell.batched)) continue;
        draft_.ranks[r].back().link = batch;
        inside = cell.batched;
        if (!inside) ++batch;
      }
    }
  }

  void with_transfers_added() {
    reserve();
    struct Row {
      std::size_t rank;
      const Cell *next, *end;
    };
    std::vector<Row> unfinished;
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      const auto& cells = order_.ranks[r];
      if (!cells.empty()) unfinished.push_back({r, cells.data(), cells.data() + cells.size()});
    }
    while (!unfinished.empty()) {
      bool progress = false, any_ended = false;
      const auto take_next = [&](Row& row) {
        take(row.rank, *row.next);
        progress = true;
        any_ended |= ++row.next == row.end;
      };
      for (Row& row : unfinished) {
        if (inputs_produced(*row.next)) take_next(row);
      }
      // Malformed: the lowest rank goes on as if its inputs were there.
      if (!progress) take_next(unfinished.front());
      if (any_ended) std::erase_if(unfinished, [](const Row& row) { return row.next == row.end; });
    }
  }

  /// Exact sizes, so that a list of millions is never moved.
  void reserve() {
    std::vector<std::size_t> sizes(order_.ranks.size());
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      for (const Cell& cell : order_.ranks[r]) {
        ++sizes[r];
        for (const Action* a : {&cell.action, cell.partner ? &*cell.partner : nullptr}) {
          const std::int32_t peer = a == nullptr ? kNobody : receiver(r, *a);
          if (peer == kNobody) continue;
          ++sizes[r];
          ++sizes[static_cast<std::size_t>(peer)];
        }
      }
    }
    for (std::size_t r = 0; r < sizes.size(); ++r) draft_.ranks[r].reserve(sizes[r] + 1);
  }

  bool produced_for(const Action& a) {
    if (a.kind == ActionKind::F)
      return a.stage.value == 0 || activation_.at(a.stage.value - 1, a.micro_batch.value) != 0;
    if (a.kind == ActionKind::I || a.kind == ActionKind::B) {
      return a.stage.value == order_.stages() - 1 ||
             gradient_.at(a.stage.value + 1, a.micro_batch.value) != 0;
    }
    return true;
  }
  bool inputs_produced(const Cell& cell) {
    return produced_for(cell.action) && (!cell.partner || produced_for(*cell.partner));
  }

  /// The other rank that needs what `a` produces, or nobody.
  std::int32_t receiver(std::size_t rank, const Action& a) const {
    int to = -1;
    if (a.kind == ActionKind::F && a.stage.value + 1 < order_.stages()) to = a.stage.value + 1;
    if ((a.kind == ActionKind::I || a.kind == ActionKind::B) && a.stage.value > 0)
      to = a.stage.value - 1;
    if (to < 0) return kNobody;
    const std::int32_t peer = order_.placement.rank_of(StageId(to), a.micro_batch).value;
    return peer == static_cast<std::int32_t>(rank) ? kNobody : peer;
  }

  void take(std::size_t rank, const Cell& cell) {
    if (cell.action.kind == ActionKind::Idle) return;
    append(rank, cell);
    produce(rank, cell.action);
    if (cell.partner) produce(rank, *cell.partner);
  }

  void produce(std::size_t rank, const Action& a) {
    if (a.kind == ActionKind::F) activation_.at(a.stage.value, a.micro_batch.value) = 1;
    if (a.kind == ActionKind::I || a.kind == ActionKind::B)
      gradient_.at(a.stage.value, a.micro_batch.value) = 1;
    const std::int32_t peer = receiver(rank, a);
    if (peer == kNobody) return;
    const bool forward = a.kind == ActionKind::F;
    append(rank, {.kind = forward ? ActionKind::SendF : ActionKind::SendB,
                  .stage = a.stage,
                  .micro_batch = a.micro_batch});
    append(static_cast<std::size_t>(peer), {.kind = forward ? ActionKind::RecvF : ActionKind::RecvB,
                                            .stage = StageId(a.stage.value + (forward ? 1 : -1)),
                                            .micro_batch = a.micro_batch});
  }

  void append(std::size_t rank, const Cell& cell) {
    Instruction& in = append(rank, cell.action);
    if (!cell.partner) return;
    in.flags = Instruction::kPair;
    in.link = static_cast<InstructionId>(draft_.partners.size());
    draft_.partners.push_back(*cell.partner);
  }
  /// Written where it stays: a copy of what was just written piece by piece would be slow.
  Instruction& append(std::size_t rank, const Action& a) {
    Instruction& in = draft_.ranks[rank].emplace_back();
    in.kind = a.kind;
    in.stage = static_cast<std::uint16_t>(a.stage.value);
    in.micro_batch = static_cast<std::uint32_t>(a.micro_batch.value);
    if (versioned_) draft_.versions[rank].push_back(a.version);
    return in;
  }

  const Order& order_;
  bool versioned_ = false;
  ByTensor<std::uint8_t> activation_, gradient_;
  Draft draft_;
};

}  // namespace

Draft list_instructions(const Order& order, const Updates& updates) {
  Draft draft = Listing(order).make();
  if (updates.wanted) append_updates(order, updates, draft);
  return draft;
}

}  // namespace pipewright::lowering
