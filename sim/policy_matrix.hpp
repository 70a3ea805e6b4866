// One order under every way to communicate: whether it ends under each preset and each combination
// of issue, channel, protocol and post, and the least eager credit that lets it end. Pure
// functions; any number of threads may call them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/order.hpp"
#include "core/program/lower.hpp"
#include "core/program/wait_for.hpp"

namespace pipewright::sim {

struct PolicyVerdict {
  std::string_view preset;  // its name, or "" for a combination
  CommPolicy policy;
  Verdict verdict = Verdict::Ok;
};

/// The presets in their order, then the combinations: by issue, channel, post, protocol. Protocols
/// are rendezvous, eager with one message, and unlimited eager, the same for both kinds of sends.
/// Channels other than edge and post = at-start have a meaning under stream only (docs/semantics.md
/// §1.2, §2) and are left out elsewhere. Run order is as lowered except in presets that say
/// otherwise. Of `costs` only the message sizes are read. Deadlock and Invalid are told apart as in
/// check().
std::vector<PolicyVerdict> policy_matrix(const Order& order, const LowerOptions& options,
                                         const CostTable& costs);

/// The same credit for both kinds on every directed edge. An order that ends with some credit ends
/// with any larger one, so one number says it all.
struct LeastCredit {
  /// 0: rendezvous is enough. Empty: not even unlimited credit lets it end.
  std::optional<std::int64_t> messages;
  /// In bytes; empty also where the size of some message is not known (0 in the cost table).
  std::optional<std::int64_t> bytes;
  bool sizes_known = false;
};

/// With the Program's own issue, channel, post and run order; its protocols are replaced.
LeastCredit least_credit(const Program& program, const CostTable& costs);

}  // namespace pipewright::sim
