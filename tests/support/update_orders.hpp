// Orders with weight versions, replicas and updates of their own, written from the papers' rules
// for tests that need one without asking the registry.
#pragma once

#include <algorithm>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright::test {

inline Cell cell_of(ActionKind kind, int stage, int micro_batch, int version = -1) {
  return {{kind, StageId(stage), MicroBatchId(micro_batch), version}, std::nullopt};
}
inline Cell update_cell() {
  return {{.kind = ActionKind::Opt, .stage = {}, .micro_batch = {}}, std::nullopt};
}
inline Cell reduce_cell(int stage) {
  return {{.kind = ActionKind::ReduceGrad, .stage = StageId(stage), .micro_batch = {}},
          std::nullopt};
}

/// PipeDream (arXiv:1806.03377 §3.2, §3.3): rank r begins with p-1-r forwards, then takes F and B
/// in turn and updates after every B; a backward uses the weights of its forward.
inline Order pipedream_order(int ranks, int micro_batches) {
  Order order;
  order.placement = Placement::loop(ranks, 1);
  order.micro_batches = micro_batches;
  for (int r = 0; r < ranks; ++r) {
    auto& row = order.ranks.emplace_back();
    std::vector<int> version;  // by micro-batch
    const int ahead = std::min(ranks - 1 - r, micro_batches);
    int updates = 0;
    const auto forward = [&] {
      row.push_back(cell_of(ActionKind::F, r, static_cast<int>(version.size()), updates));
      version.push_back(updates);
    };
    for (int i = 0; i < ahead; ++i) forward();
    for (int m = 0; m < micro_batches; ++m) {
      if (static_cast<int>(version.size()) < micro_batches) forward();
      row.push_back(cell_of(ActionKind::B, r, m, version[static_cast<std::size_t>(m)]));
      row.push_back(update_cell());
      ++updates;
    }
  }
  return order;
}

/// PipeDream-2BW (arXiv:2006.09503 §3.1): 1F1B without a flush; an update for each `batch`
/// micro-batches; those of batch g use version g-1, the first ones version 0.
inline Order double_buffered_order(int ranks, int batch, int batches) {
  const int micro_batches = batch * batches;
  Order order;
  order.placement = Placement::loop(ranks, 1);
  order.micro_batches = micro_batches;
  const auto version = [batch](int m) { return std::max(0, m / batch - 1); };
  for (int r = 0; r < ranks; ++r) {
    auto& row = order.ranks.emplace_back();
    const int ahead = std::min(ranks - 1 - r, micro_batches);
    for (int m = 0; m < ahead; ++m) row.push_back(cell_of(ActionKind::F, r, m, version(m)));
    for (int m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches)
        row.push_back(cell_of(ActionKind::F, r, m + ahead, version(m + ahead)));
      row.push_back(cell_of(ActionKind::B, r, m, version(m)));
      if ((m + 1) % batch == 0) row.push_back(update_cell());
    }
  }
  return order;
}

/// Two pipelines in opposite directions, as Chimera has them (arXiv:2107.06925 §3.1): even
/// micro-batches go down the ranks, odd ones up. Each rank takes what is ready, backwards first.
inline Order bidirectional_order(int ranks, int micro_batches) {
  const auto rank_of = [ranks](int stage, int m) { return m % 2 == 0 ? stage : ranks - 1 - stage; };
  std::vector<std::vector<RankId>> table(static_cast<std::size_t>(ranks));
  for (int s = 0; s < ranks; ++s) {
    for (int m = 0; m < micro_batches; ++m)
      table[static_cast<std::size_t>(s)].emplace_back(rank_of(s, m));
  }
  Order order;
  order.placement = Placement::explicit_micro_batches(std::move(table), ranks);
  order.micro_batches = micro_batches;
  order.ranks.resize(static_cast<std::size_t>(ranks));
  // By micro-batch: how many of its 2p actions are done; the next is a forward below p.
  std::vector<int> done(static_cast<std::size_t>(micro_batches), 0);
  const auto stage_of = [ranks](int step) { return step < ranks ? step : 2 * ranks - 1 - step; };
  for (bool progress = true; progress;) {
    progress = false;
    const std::vector<int> before = done;
    for (int r = 0; r < ranks; ++r) {
      int chosen = -1;
      for (int m = 0; m < micro_batches; ++m) {
        const int step = before[static_cast<std::size_t>(m)];
        if (step == 2 * ranks || rank_of(stage_of(step), m) != r) continue;
        const bool backward = step >= ranks;
        if (chosen < 0 || (backward && before[static_cast<std::size_t>(chosen)] < ranks))
          chosen = m;
      }
      if (chosen < 0) continue;
      const int step = done[static_cast<std::size_t>(chosen)]++;
      order.ranks[static_cast<std::size_t>(r)].push_back(
          cell_of(step < ranks ? ActionKind::F : ActionKind::B, stage_of(step), chosen));
      progress = true;
    }
  }
  return order;
}

/// 1F1B-RR with the 2-1 configuration of PipeDream's paper (§3.2): stage 0 on ranks 0 and 1, which
/// take turns, stage 1 on rank 2. The replicas reduce and update together. An even number of
/// micro-batches.
inline Order round_robin_order(int micro_batches) {
  std::vector<std::vector<RankId>> table(2);
  for (int m = 0; m < micro_batches; ++m) {
    table[0].emplace_back(m % 2);
    table[1].emplace_back(2);
  }
  Order order;
  order.placement = Placement::explicit_micro_batches(std::move(table), 3);
  order.micro_batches = micro_batches;
  for (int r = 0; r < 2; ++r) {
    auto& row = order.ranks.emplace_back();
    const auto version = [r](int m) { return std::max(0, (m - r) / 2 - 1); };
    row.push_back(cell_of(ActionKind::F, 0, r, 0));
    for (int m = r; m < micro_batches; m += 2) {
      if (m + 2 < micro_batches) row.push_back(cell_of(ActionKind::F, 0, m + 2, version(m + 2)));
      row.push_back(cell_of(ActionKind::B, 0, m, version(m)));
      row.push_back(reduce_cell(0));
      row.push_back(update_cell());
    }
  }
  auto& last = order.ranks.emplace_back();
  for (int m = 0; m < micro_batches; ++m) {
    last.push_back(cell_of(ActionKind::F, 1, m, m));
    last.push_back(cell_of(ActionKind::B, 1, m, m));
    last.push_back(update_cell());
  }
  return order;
}

}  // namespace pipewright::test
