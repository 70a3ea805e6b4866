#include "core/program/lowering.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/large_pages.hpp"

namespace pipewright::lowering {
namespace {

constexpr std::int32_t kNobody = -1;
constexpr std::ptrdiff_t kCellsAhead = 3, kInstructionsAhead = 12;
/// Smaller rows lie in what the heap has at hand already.
constexpr std::size_t kManyBytes = std::size_t{1} << 23;

class Listing {
 public:
  Listing(const Order& order, const OrderFacts& facts)
      : order_(order),
        facts_(facts),
        activation_(order.stages(), facts.transfers ? 0 : order.micro_batches, 0),
        gradient_(order.stages(), facts.transfers ? 0 : order.micro_batches, 0),
        draft_(sizes()) {
    if (facts.versions) draft_.versions.resize(order.ranks.size());
  }

  Draft make() {
    if (facts_.transfers) {
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
      bool inside = false;  // a batch that the cell before has begun
      for (const Cell& cell : order_.ranks[r]) {
        if (cell.action.kind == ActionKind::Idle) continue;
        append(r, cell);
        if ((!inside && !cell.batched) || !is_transfer(cell.action.kind)) continue;
        draft_.ranks[r].back().link = batch;
        inside = cell.batched;
        if (!inside) ++batch;
      }
    }
  }

  void with_transfers_added() {
    struct Cells {
      std::size_t rank;
      const Cell *next, *end;
    };
    std::vector<Cells> unfinished;
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      const auto& cells = order_.ranks[r];
      if (!cells.empty()) unfinished.push_back({r, cells.data(), cells.data() + cells.size()});
    }
    while (!unfinished.empty()) {
      bool progress = false, any_ended = false;
      const auto take_next = [&](Cells& row) {
        take(row.rank, *row.next);
        progress = true;
        any_ended |= ++row.next == row.end;
        // Other ranks come first; by the time this one goes on, what it reads is in the cache.
        __builtin_prefetch(row.next + kCellsAhead);
        __builtin_prefetch(reinterpret_cast<const char*>(row.next + kCellsAhead) + 64);
      };
      for (Cells& row : unfinished) {
        if (inputs_produced(*row.next)) take_next(row);
      }
      // Malformed: the lowest rank goes on as if its inputs were there.
      if (!progress) take_next(unfinished.front());
      if (any_ended)
        std::erase_if(unfinished, [](const Cells& row) { return row.next == row.end; });
    }
  }

  /// Exact sizes, so that a list of millions is never moved.
  std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> sizes(order_.ranks.size(), 1);
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) {
      if (facts_.transfers) {
        sizes[r] += order_.ranks[r].size();
        continue;
      }
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
    return sizes;
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
    __builtin_prefetch(&in + kInstructionsAhead, 1);
    in.kind = a.kind;
    in.stage = static_cast<std::uint16_t>(a.stage.value);
    in.micro_batch = static_cast<std::uint32_t>(a.micro_batch.value);
    if (facts_.versions) draft_.versions[rank].push_back(a.version);
    return in;
  }

  const Order& order_;
  const OrderFacts facts_;
  ByTensor<std::uint8_t> activation_, gradient_;
  Draft draft_;
};

}  // namespace

Draft::Draft(const std::vector<std::size_t>& sizes) {
  const std::size_t bytes =
      std::accumulate(sizes.begin(), sizes.end(), std::size_t{1}) * sizeof(Instruction);
  if (bytes >= kManyBytes)
    memory = std::make_unique<std::pmr::monotonic_buffer_resource>(bytes, large_page_memory());
  std::pmr::memory_resource* const from = memory ? memory.get() : std::pmr::new_delete_resource();
  for (const std::size_t size : sizes) ranks.emplace_back(Row::allocator_type(from)).reserve(size);
}

OrderFacts facts_of(const Order& order) {
  OrderFacts facts;
  const auto look_at = [&](const Action& a) {
    if (a.version < 0) return;
    facts.versions = true;
    facts.asynchronous |= is_compute(a.kind);
  };
  for (const auto& row : order.ranks) {
    for (const Cell& cell : row) {
      facts.transfers |= is_transfer(cell.action.kind) || is_wait_for_send(cell.action.kind);
      look_at(cell.action);
      if (cell.partner) look_at(*cell.partner);
    }
  }
  return facts;
}

Draft list_instructions(const Order& order, const OrderFacts& facts, const Updates& updates) {
  Draft draft = Listing(order, facts).make();
  if (updates.wanted) append_updates(order, updates, draft);
  return draft;
}

}  // namespace pipewright::lowering
