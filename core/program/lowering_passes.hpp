// In which pass of lowering each cell of an order is taken (docs/semantics.md §1.1), found rank by
// rank, without making the passes. Not part of the public interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright::lowering {

inline constexpr std::uint32_t kNoEdge = UINT32_MAX;

/// An action of an order, and what is to be known of it.
struct CompactAction {
  static constexpr std::uint8_t kReceives = 1;   // its input is made on another rank
  static constexpr std::uint8_t kFromAbove = 2;  // by a later one, so it is there a pass later
  static constexpr std::uint8_t kFirst = 4;      // of a pair; the second one follows
  static constexpr std::uint8_t kNeeds = 8;      // has an input of another stage

  std::uint32_t micro_batch = 0;
  std::uint32_t pass = 0;        // from 1
  std::uint32_t edge = kNoEdge;  // on which its output goes to another rank
  std::uint16_t stage = 0;
  ActionKind kind = ActionKind::F;
  std::uint8_t flags = 0;

  bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
};

/// A receive that lowering lists on the destination of an edge.
struct Arrival {
  std::uint32_t pass;  // in which the source takes the action
  std::uint32_t micro_batch;
  std::uint16_t stage;  // that produces it
  ActionKind kind;      // SendF or SendB
};

/// From one rank to another one.
struct Edge {
  std::int32_t source = 0, destination = 0;
  std::size_t begin = 0, count = 0;  // its arrivals, in order
};

/// An order whose computations stand each once, on the rank of its placement, behind what they
/// need of their own rank, and which is never stuck.
struct NumberedOrder {
  std::vector<CompactAction> actions;
  std::vector<std::size_t> begin, end;  // by rank, in `actions`
  std::vector<Edge> edges;
  std::vector<std::vector<std::uint32_t>> edges_into;  // by rank
  std::unique_ptr<Arrival[]> arrivals;
  std::size_t instructions = 0;  // with both ends of every transfer
  std::size_t stride = 0;        // from a stage to the next, of the tables
  /// By stage and micro-batch: the pass in which this was made; free for another use.
  std::vector<std::uint32_t> activations, gradients;
};

/// nullopt where the order is not like that, or has anything but F, I, W, B and empty cells, or a
/// rank hears from more than 16 others: then the passes have to be made. O(actions).
std::optional<NumberedOrder> number_passes(const Order& order);

}  // namespace pipewright::lowering
