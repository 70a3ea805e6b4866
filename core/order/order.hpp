// The order: what each rank computes, one after the other, and its CSV form
// (PyTorch's schedule files).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/order/action.hpp"
#include "core/order/call.hpp"
#include "core/order/message_format.hpp"
#include "core/order/parts.hpp"
#include "core/order/placement.hpp"
#include "core/order/sharding.hpp"

namespace pipewright {

/// More than these are a mistyped number.
inline constexpr std::int64_t kMostMicroBatchesOfOrder = std::int64_t{1} << 24;

/// A schedule is a rule that makes one of these. Plain data; cells of rank r in
/// the order in which r takes them.
struct Order {
  std::vector<std::vector<Cell>> ranks;
  Placement placement;
  int micro_batches = 0;
  /// What ends of transfers expect, where the order says it.
  std::vector<MessageFormat> messages = {};
  /// By number: what the Actions of a call's kind name (docs/semantics.md §3.3).
  std::vector<Call> calls = {};
  /// The groups whose ranks the order names; of any other group the ranks that call it.
  std::vector<Group> groups = {};
  /// Of what actions consist, and the devices that each rank stands for (docs/semantics.md §3.4).
  std::vector<ActionParts> parts = {};
  std::vector<MeshAxis> mesh = {};
  /// The axes along which consecutive ranks differ that are devices of one pipeline rank (§3.5).
  std::vector<MeshAxis> devices = {};
  /// What replicas divide among them (§3.2).
  Sharding sharding = {};
  /// The input says that it is a part of a log: what it lacks is no fault.
  bool fragment = false;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int stages() const { return placement.stages(); }
  /// True if any cell is a transfer end, or a wait for one: lowering then takes the order as
  /// written.
  bool has_transfers() const;
  /// Of an Action of a call's kind.
  const Call& call(const Action& action) const {
    return calls[static_cast<std::size_t>(action.micro_batch.value)];
  }
  /// Whether a group is what ranks, or devices of a rank, are along an axis, or several.
  bool names_axis(const Call& call) const {
    return span_of(mesh, call.group) || span_of(devices, call.group);
  }
};

/// Reads a schedule CSV: a row a rank, empty cells are idle slots (those at the end of a row are
/// dropped); a line "# fragment" says that it is one, "# group ep: 0 2" which ranks are in a group;
/// these, and others, stand above the rows. The placement is the row in which a
/// stage computes (by micro-batch where replicas share a stage); in a fragment without the stage's
/// computation, the row of its SEND, RECV. Throws InputError with file, row, cell and a line that
/// points at the bad cell.
Order read_order_csv(std::string_view text, const std::string& file);
/// The placement that the rows themselves show, by the same rule.
Placement placement_of_rows(const Order& order, int stages, int micro_batches);
/// How many stages and micro-batches the actions name; a transfer end names its peer's stage too.
struct OrderExtent {
  int stages = 0, micro_batches = 0;
  std::int64_t actions = 0;  // that have both
};
OrderExtent extent_of(const Order& order);
/// A sentence if a Program cannot hold so many, or far fewer actions stand there than so many
/// stages and micro-batches have; else "".
std::string excess_of(const OrderExtent& extent);
/// The stage at the other end of a transfer; -1 where there is none.
int peer_stage(const Action& transfer);
/// One row a rank, cells separated by commas, no spaces; ends with a newline. A fragment says so.
std::string write_order_csv(const Order& order);

}  // namespace pipewright
