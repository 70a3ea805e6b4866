// Section 1 of docs/semantics.md: from an order to the instruction list of each rank.
#pragma once

#include <map>
#include <utility>

#include "tests/reference/order.hpp"
#include "tests/reference/policy.hpp"

namespace pipewright::reference {

/// Where stages live, read off an order. A stage may live on several ranks, each for its own
/// micro-batches.
class Placement {
 public:
  explicit Placement(const Order& order);

  /// The rank of a stage for a micro-batch; kOutside if no row says anything about the stage (a
  /// fragment).
  [[nodiscard]] int rank_of(int stage, int micro_batch) const;
  /// The rank at the other end of a transfer.
  [[nodiscard]] int peer_of(const Action& transfer_end) const;

  static constexpr int kOutside = -1;

 private:
  // The row that computes (stage, micro-batch), the row with a transfer end of it, a row that
  // computes the stage for anything (the last), one that names it (the first): the first of these
  // that there is.
  std::map<std::pair<int, int>, int> computed_, transferred_;
  std::map<int, int> stage_computed_, stage_named_;
  int ranks_ = 0;
};

[[nodiscard]] bool has_transfers(const Order& order);
/// 1.1; an order that holds transfer ends comes back as it is, but for its empty cells.
[[nodiscard]] Order add_communication(const Order& order);
/// 1.2; only Post::Deferred changes the lists.
[[nodiscard]] Order post_receives(const Order& order, Post post);
/// 1.3.
[[nodiscard]] Order order_runs(const Order& order, RunOrder run_order, std::size_t devices = 1);
/// All three. Batches stay cells where they may be one operation under the policy (2.4).
/// So many ranks in a row are the devices of one (3.5).
[[nodiscard]] Order lower(const Order& order, const Policy& policy, std::size_t devices = 1);

}  // namespace pipewright::reference
