// The text form of an order: PyTorch's CSV grammar, one row a rank, one cell an action or an
// overlapped pair, and the calls of section 3.3. Nothing in tests/reference/ includes core/ or
// sim/: this is a second reading of docs/semantics.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pipewright::reference {

/// `2F0`, `1RECV_B3`, `0UNSHARD`, `OPT`. What an action does not have (OPT has no stage) is -1.
struct Action {
  int stage = -1;
  std::string kind;
  int micro_batch = -1;
  int version = -1;  // `2F0@3`; -1: none is named
  // Of a call (3.3) only; "" is what it does not say.
  std::string group = "", data = "", shape = "", dtype = "", stream = "";
  int peer = -1;  // SEND, RECV
  // Of a part (3.4) only: the name, stage and kind of its action, the weights of computations (kind
  // "PART", named by `data`) before it and of all, and its own, of a call 0 where it has none.
  std::string part_of = "", of_kind = "";
  int of_stage = -1;
  std::int64_t before = 0, weight = 1, of_all = 1;
  bool beside = false;  // a call with & in front
};

/// One action, the two of an overlapped pair, or the transfer ends of a batch; nothing: an idle
/// slot of the CSV.
using Cell = std::vector<Action>;
using Row = std::vector<Cell>;
using Order = std::vector<Row>;
/// The ranks of each group whose ranks the text names (`# group g: 0 2`).
using Groups = std::map<std::string, std::vector<int>>;
/// Of what the actions of a stage and kind ("0F") consist (3.4).
using Parts = std::map<std::string, std::vector<Action>>;
/// How many devices of a rank differ in an axis alone, with its name (3.4).
using Mesh = std::vector<std::pair<std::string, int>>;

/// What the text says above its rows.
struct Heading {
  Groups groups = {};
  Parts parts = {};
  Mesh mesh = {};
  Mesh devices = {};       // that consecutive ranks are (3.5)
  int zero = 0;            // 3.2: the stage of ZeRO; 0: none is named
  int replica_groups = 1;  // 3.2: of replicas that have all parts together
};

[[nodiscard]] bool is_send(const Action& action);
[[nodiscard]] bool is_recv(const Action& action);
/// SEND or RECV: a transfer end that names its peer.
[[nodiscard]] bool is_named_transfer(const Action& action);
/// Any cell of section 3.3.
[[nodiscard]] bool is_call(const Action& action);
/// ALL_REDUCE ALL_GATHER REDUCE_SCATTER ALL_TO_ALL BROADCAST RING_SEND.
[[nodiscard]] bool is_group_collective(const Action& action);
/// The kind, group, data, shape or type of the one is not that of the other, as far as both say it.
[[nodiscard]] bool differ(const Action& a, const Action& b);
/// A cell that holds one transfer end.
[[nodiscard]] bool is_transfer(const Cell& cell);
/// WAIT_SEND_F WAIT_SEND_B WAIT_REDUCE_GRAD.
[[nodiscard]] bool is_wait(const Action& action);
/// What the wait waits for, by name.
[[nodiscard]] std::string awaited(const Action& wait);
/// A cell that holds several.
[[nodiscard]] bool is_batch(const Cell& cell);
/// Each end of a batch in a cell of its own.
[[nodiscard]] Order without_batches(const Order& order);
/// A computation of an action, or a call of it (3.4).
[[nodiscard]] bool is_part(const Action& action);
/// F I W B.
[[nodiscard]] bool is_pass(const Action& action);
/// The axes of the devices that are the group, [first, end): one, or neighbours whose names "+"
/// joins; first == end: the group is no such devices.
struct AxisRange {
  std::size_t first = 0, end = 0;
};
[[nodiscard]] AxisRange axes_of_group(const Mesh& mesh, const std::string& group);
[[nodiscard]] bool is_axis(const Mesh& mesh, const std::string& group);
/// Of a rank.
[[nodiscard]] int devices_of_rank(const Mesh& mesh);
/// Some F, I, W or B names a version (section 3.1).
[[nodiscard]] bool is_asynchronous(const Order& order);

/// No I, B, W, SEND_B and RECV_B (section 7).
[[nodiscard]] bool is_forward_only(const Order& order);

/// `<stage><kind><micro-batch>`, the name by which everything here looks things up (no version).
[[nodiscard]] std::string name(int stage, const std::string& kind, int micro_batch);
[[nodiscard]] std::string name(const Action& action);
[[nodiscard]] std::string text(const Cell& cell);

/// Reads a whole CSV. Empty cells stay, for lowering (section 1.1); a row without any action is no
/// rank; lines that begin with # are none either. Throws std::invalid_argument naming row and cell.
[[nodiscard]] Order parse_order(const std::string& csv);
[[nodiscard]] Heading parse_heading(const std::string& csv);
[[nodiscard]] Cell parse_cell(const std::string& cell);
[[nodiscard]] std::string to_csv(const Order& order, const Heading& heading = {});

}  // namespace pipewright::reference
