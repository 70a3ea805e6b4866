// Costs and memory as people write them on a command line, and the same model cut into another
// number of stages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/order/placement.hpp"

namespace pipewright {

/// `--cost F=1ms,I=..,W=..,B=..,FB=..,OPT=..,comm=..` for `stages` stages: integers in ns or with a
/// unit; F, I, W, B and OPT also one value a stage, with colons: `F=1ms:2ms:1ms`. B defaults to
/// I + W, and I and W to halves of B where only B is given. `flag`, for messages: one that begins
/// with --rank has a value for each rank. Throws InputError.
CostTable parse_costs(std::string_view text, int stages, std::string_view flag = "--cost");

/// The flag that a text was given to.
struct CostFlag {
  std::string_view name;
  /// Set where its values are of ranks: each is divided over the stages that this placement gives
  /// the rank.
  const Placement* of_ranks = nullptr;
};
/// What is taken where nobody names times.
inline constexpr std::string_view kAssumedCosts = "F=1ms,I=1ms,W=1ms";

/// Changes in a table what a text of parse_costs() names; all else stays. A stage whose B was I + W
/// keeps that: a B that is not named becomes the sum, an I or W that is not named becomes what the
/// other leaves of B, and if neither is named both keep their shares of B. `comm` is the latency of
/// every route; bandwidths stay.
void change_costs(std::string_view text, CostTable& table, const CostFlag& flag = {"--cost"});
/// What such a text names: "F", "comm". Throws InputError.
std::vector<std::string> cost_keys(std::string_view text);
/// `--mem F=..,I=..,W=..,constant=..,version=..,limit=..` into table.memory, one value or one a
/// stage; returns the limit (0: none). What is not named stays; but a W that gave back all that F
/// and I left still does. Throws InputError, also for a limit without anything to hold against it.
Bytes parse_memory(std::string_view text, CostTable& table, const CostFlag& flag = {"--mem"});

/// "4MiB": the size of every activation and gradient. Throws InputError, also below 1 byte.
void set_message_bytes(std::string_view text, CostTable& table,
                       std::string_view flag = "--message-bytes");

/// The costs of the same model cut into the placement's stages, which are equally long; the costs
/// of a stage of `whole` are taken to be spread evenly over it. Fractions are rounded up, for times
/// in the sum over a rank's stages, for memory in each stage, so that cutting never makes anything
/// cheaper. An overlapped pair shrinks in the same ratio. Latency, bandwidth and messages stay.
CostTable resampled(const CostTable& whole, const Placement& placement);
/// Whether pieces are so small that rounding to whole ns and bytes makes 1 % of one or more.
bool cut_is_rough(const CostTable& whole, int stages);
/// With one stage a rank.
CostTable resampled(const CostTable& whole, int stages);

}  // namespace pipewright
