#include "planner/export/megatron_interleaved.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/order/forward_order.hpp"
#include "planner/export/pytorch_actions.hpp"
#include "planner/schedules/chunk_turns.hpp"

namespace pipewright::planner {
namespace {

constexpr std::array<std::string_view, 4> kExchanges = {"overlap", "warmup-flush", "batched",
                                                        "even-odd"};

struct LoopSizes {
  int ranks = 0, chunks = 0, micro_batches = 0, group = 0;
  bool forward_only = false;

  int stages() const { return ranks * chunks; }
  std::int64_t turns() const { return std::int64_t{micro_batches} * chunks; }
};

/// The transfers that Megatron core hands over together: at most one of each kind.
struct Exchange {
  std::optional<Action> send_f = {}, recv_f = {}, send_b = {}, recv_b = {};
};

/// The list of one rank. Steps of forwards and of backwards count from 0 on each rank.
class LoopOfRank {
 public:
  LoopOfRank(const LoopSizes& sizes, int rank, MegatronExchange exchange, const Action& sync)
      : sizes_(sizes),
        rank_(rank),
        first_(rank == 0),
        last_(rank + 1 == sizes.ranks),
        exchange_(exchange),
        sync_(sync),
        turns_(sizes.micro_batches, sizes.chunks, sizes.group),
        total_(sizes.turns()),
        warm_up_(sizes.forward_only
                     ? total_
                     : interleaved_warm_up(sizes.ranks, rank, sizes.chunks, sizes.group, total_)) {}

  std::vector<Cell> run() {
    warm_up();
    for (std::int64_t k = 0; k < total_ - warm_up_; ++k) steady(k);
    if (!sizes_.forward_only) cool_down();
    return std::move(cells_);
  }

 private:
  bool overlaps() const {
    return exchange_ == MegatronExchange::Overlap || exchange_ == MegatronExchange::WarmupFlush;
  }
  bool flushes() const { return exchange_ == MegatronExchange::WarmupFlush; }
  bool has_steady() const { return warm_up_ < total_; }

  Action action(ActionKind kind, const ChunkTurn& turn, int rank) const {
    return {kind, StageId(turn.chunk * sizes_.ranks + rank), MicroBatchId(turn.micro_batch)};
  }
  Action forward(std::int64_t k) const { return action(ActionKind::F, turns_.forward(k), rank_); }
  Action backward(std::int64_t k) const { return action(ActionKind::B, turns_.backward(k), rank_); }

  static Action transfer(ActionKind kind, const Action& computation) {
    return {kind, computation.stage, computation.micro_batch};
  }
  std::optional<Action> send_f(std::int64_t k) const {
    const Action f = forward(k);
    if (f.stage.value + 1 == sizes_.stages()) return std::nullopt;
    return transfer(ActionKind::SendF, f);
  }
  std::optional<Action> send_b(std::int64_t k) const {
    const Action b = backward(k);
    if (b.stage.value == 0) return std::nullopt;
    return transfer(ActionKind::SendB, b);
  }
  /// recv_tensor_from_previous_stage(): the rank where data enters takes what the rank where it
  /// leaves has made p - 1 steps before, every other rank its next input.
  std::optional<Action> recv_f_after(std::int64_t k) const {
    if (!first_) return transfer(ActionKind::RecvF, forward(k + 1));
    if (k < sizes_.ranks - 1) return std::nullopt;
    ChunkTurn sent = turns_.forward(k - (sizes_.ranks - 1));
    if (++sent.chunk == sizes_.chunks) return std::nullopt;
    return action(ActionKind::RecvF, sent, rank_);
  }
  std::optional<Action> recv_b_after(std::int64_t k) const {
    if (!last_) return transfer(ActionKind::RecvB, backward(k + 1));
    if (k < sizes_.ranks - 1) return std::nullopt;
    ChunkTurn sent = turns_.backward(k - (sizes_.ranks - 1));
    if (--sent.chunk < 0) return std::nullopt;
    return action(ActionKind::RecvB, sent, rank_);
  }
  std::optional<Action> first_recv_b() const {
    if (last_) return std::nullopt;
    return transfer(ActionKind::RecvB, backward(0));
  }

  void add(const Action& a) { cells_.push_back({a, std::nullopt}); }

  /// _batched_p2p_ops() or, one by one in the order for the rank's parity, _p2p_ops(). Returns
  /// whether there was anything.
  bool post(const Exchange& e) {
    const bool batch = exchange_ == MegatronExchange::Batched;
    const std::array<const std::optional<Action>*, 4> in_order =
        batch            ? std::array{&e.send_b, &e.recv_f, &e.send_f, &e.recv_b}
        : rank_ % 2 == 0 ? std::array{&e.send_f, &e.recv_f, &e.send_b, &e.recv_b}
                         : std::array{&e.recv_f, &e.send_f, &e.recv_b, &e.send_b};
    const std::size_t before = cells_.size();
    for (const auto* end : in_order) {
      if (!*end) continue;
      add(**end);
      cells_.back().batched = batch;
    }
    if (cells_.size() == before) return false;
    cells_.back().batched = false;
    return true;
  }

  static void wait_for(const std::optional<Action>& send, std::vector<Cell>& cells) {
    if (!send) return;
    const bool activation = send->kind == ActionKind::SendF;
    cells.push_back(
        {transfer(activation ? ActionKind::WaitSendF : ActionKind::WaitSendB, *send), {}});
  }

  /// Not waited for, except for the send of the exchange before it in its direction.
  void exchange_behind(const Exchange& e, const std::optional<Action>& send,
                       std::optional<Action>& pending) {
    post(e);
    wait_for(pending, cells_);
    pending = send;
  }
  /// Waited for at once. HOST_SYNC waits for no other transfer where none is under way; where one
  /// is, the receive is for the backward with that number.
  void exchange_at_once(const Exchange& e, std::int64_t next_backward = 0) {
    if (!post(e)) return;
    const bool used_next = !e.recv_b || same_place(*e.recv_b, backward(next_backward));
    // Where a receive is for a later backward, this is the last rank: its sends all go to one rank,
    // one after the other, and have ended with the last of them.
    if ((!pending_f_ && !pending_b_) || !used_next) {
      add(sync_);
    } else {
      wait_for(e.send_b, cells_);
    }
  }
  static bool same_place(const Action& a, const Action& b) {
    return a.stage == b.stage && a.micro_batch == b.micro_batch;
  }

  void exchange_forward(const Exchange& e) { exchange_behind(e, e.send_f, pending_f_); }
  void exchange_backward(const Exchange& e) { exchange_behind(e, e.send_b, pending_b_); }

  void warm_up() {
    if (!first_) exchange_at_once({.recv_f = transfer(ActionKind::RecvF, forward(0))});
    for (std::int64_t k = 0; k < warm_up_; ++k) {
      const std::optional<Action> next = k + 1 < total_ ? recv_f_after(k) : std::nullopt;
      const bool ends = k + 1 == warm_up_ && has_steady();
      const bool fetched = flushes() && !first_;
      if (fetched) post({.recv_f = next});
      add(forward(k));
      Exchange e{.send_f = send_f(k), .recv_f = fetched ? std::nullopt : next};
      if (ends && !overlaps()) e.recv_b = first_recv_b();
      if (flushes()) {
        exchange_forward(e);
      } else {
        exchange_at_once(e);
      }
      if (ends && overlaps()) post({.recv_b = first_recv_b()});
    }
  }

  void steady(std::int64_t k) {
    const std::int64_t f = k + warm_up_;
    const Exchange on{.send_f = send_f(f),
                      .recv_f = f + 1 < total_ ? recv_f_after(f) : std::nullopt};
    const Exchange back{.send_b = send_b(k), .recv_b = recv_b_after(k)};
    add(forward(f));
    if (overlaps()) exchange_forward(on);
    add(backward(k));
    if (overlaps()) {
      exchange_backward(back);
    } else {
      exchange_at_once({on.send_f, on.recv_f, back.send_b, back.recv_b});
    }
  }

  void cool_down() {
    if (!has_steady()) exchange_at_once({.recv_b = first_recv_b()});
    for (std::int64_t k = total_ - warm_up_; k < total_; ++k) {
      const std::optional<Action> next = k + 1 < total_ ? recv_b_after(k) : std::nullopt;
      const bool fetched = flushes() && !last_;
      if (fetched) post({.recv_b = next});
      add(backward(k));
      const Exchange e{.send_b = send_b(k), .recv_b = fetched ? std::nullopt : next};
      if (flushes()) {
        exchange_backward(e);
      } else {
        exchange_at_once(e, k + 1);
      }
    }
    wait_for(pending_b_, cells_);
  }

  const LoopSizes& sizes_;
  const int rank_;
  const bool first_, last_;
  const MegatronExchange exchange_;
  const Action sync_;
  const ChunkTurns turns_;
  const std::int64_t total_, warm_up_;
  std::optional<Action> pending_f_, pending_b_;  // sends that the next exchange waits for
  std::vector<Cell> cells_;
};

[[noreturn]] void refuse(const std::string& why) {
  throw InputError("Megatron-LM's interleaved loop does not run this order: " + why);
}

/// The sizes that the order shows, before its lists are compared.
LoopSizes sizes_of(const Order& order) {
  if (!holds_computations_alone(order) || !order.parts.empty())
    refuse("it has transfers, collectives or parts of its own; give the computations alone");
  if (order.placement.looks_at_micro_batch())
    refuse("a stage stands on several ranks; give one of its pipelines");
  const int ranks = order.rank_count();
  const int chunks = ranks < 2 ? 0 : order.stages() / ranks;
  bool in_loop = chunks >= 2 && order.stages() % ranks == 0;
  for (int s = 0; in_loop && s < order.stages(); ++s)
    in_loop = order.placement.rank_of(StageId(s), MicroBatchId(0)) == RankId(s % ranks);
  if (!in_loop)
    refuse("it wants p ranks, two or more, with stages r, p + r, ... on rank r, two or more");
  LoopSizes sizes{.ranks = ranks,
                  .chunks = chunks,
                  .micro_batches = order.micro_batches,
                  .forward_only = is_forward_only(order)};
  for (const Cell& cell : order.ranks.front()) {
    if (cell.action.kind == ActionKind::Idle) continue;
    if (cell.action.kind != ActionKind::F || cell.action.stage.value != 0) break;
    ++sizes.group;
  }
  const int rest = sizes.group == 0 ? 0 : order.micro_batches % sizes.group;
  if (sizes.group < ranks || (rest > 0 && rest < ranks)) {
    refuse("it wants groups of at least as many micro-batches as ranks, " + std::to_string(ranks) +
           ", the last one too; rank 0 computes stage 0 for " + std::to_string(sizes.group) +
           " of " + std::to_string(order.micro_batches) + " before another stage");
  }
  return sizes;
}

/// The computations of a list that the loop makes are those of the order.
void require_same(const std::vector<Cell>& asked, const std::vector<Cell>& list, int rank) {
  std::vector<Cell> ours, theirs;
  const auto add_computations = [](const std::vector<Cell>& from, std::vector<Cell>& to) {
    for (const Cell& cell : from) {
      if (is_compute(cell.action.kind)) to.push_back(cell);
    }
  };
  add_computations(asked, ours);
  add_computations(list, theirs);
  const auto [mine, its] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  if (mine == ours.end() && its == theirs.end()) return;
  refuse("rank " + std::to_string(rank) + " computes " +
         (mine == ours.end() ? "nothing more" : to_string(*mine)) + " where the loop computes " +
         (its == theirs.end() ? "nothing more" : to_string(*its)));
}

}  // namespace

std::vector<std::string> megatron_exchange_names() {
  return {kExchanges.begin(), kExchanges.end()};
}

MegatronExchange parse_megatron_exchange(std::string_view name) {
  const auto found = std::find(kExchanges.begin(), kExchanges.end(), name);
  if (found != kExchanges.end()) return static_cast<MegatronExchange>(found - kExchanges.begin());
  throw InputError("unknown exchange of Megatron-LM \"" + std::string(name) + "\"" +
                   did_you_mean(name, {kExchanges.begin(), kExchanges.end()}) +
                   "; choose one of overlap, warmup-flush, batched, even-odd");
}

std::string_view to_string(MegatronExchange exchange) {
  return kExchanges[static_cast<std::size_t>(exchange)];
}

Order megatron_interleaved_list(const Order& order, MegatronExchange exchange) {
  const LoopSizes sizes = sizes_of(order);
  Order list;
  list.placement = order.placement;
  list.micro_batches = order.micro_batches;
  list.messages = order.messages;
  CallTable calls;
  const Action sync = calls.action_of({.kind = ActionKind::HostSync});
  for (int r = 0; r < sizes.ranks; ++r) {
    list.ranks.push_back(LoopOfRank(sizes, r, exchange, sync).run());
    require_same(order.ranks[static_cast<std::size_t>(r)], list.ranks.back(), r);
  }
  list.calls = calls.take();
  return list;
}

std::vector<sim::NamedPolicy> megatron_interleaved_policies(MegatronExchange exchange, int ranks) {
  CommPolicy policy;
  if (exchange == MegatronExchange::Batched) {
    // batch_isend_irecv() goes over the group's one communicator, of whatever it consists.
    policy.channel = Channel::Rank;
    policy.batches = Batches::Joined;
    return {{"lazy", policy}, {"eager", policy}};
  }
  // Of two ranks, one sends over the pipeline's group and the other over that of all ranks.
  if (ranks == 2) return {{"lazy", policy}, {"eager", policy}};
  CommPolicy eager = policy;
  policy.channel = Channel::Pair;
  eager.channel = Channel::Rank;
  return {{"lazy", policy}, {"eager", eager}};
}

}  // namespace pipewright::planner
