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
/// I + W, and I and W to halves of B where only B is said. `flag`, for messages: one that begins
/// with --rank has a value for each rank. Throws InputError.
CostTable parse_costs(std::string_view text, int stages, std::string_view flag = "--cost");

/// The flag that a text stands behind.
struct CostFlag {
  std::string_view name;
  /// Set where its values are of ranks: they are cut into the stages that this placement gives
  /// them.
  const Placement* of_ranks = nullptr;
};
/// parse_costs() into a table that is there: what the text names changes, all else stays. Where a
/// stage's B is its I + W it goes on to be: a B that is not named follows, and an I or a W that is
/// not named is the rest of B, or where both are not named, its old share. `comm` is the latency of
/// every route; bandwidths stay.
void change_costs(std::string_view text, CostTable& table, const CostFlag& flag = {"--cost"});
/// What such a text names: "F", "comm". Throws InputError.
std::vector<std::string> cost_keys(std::string_view text);
/// `--mem F=..,I=..,W=..,constant=..,version=..,limit=..` into table.memory, one value or one a
/// stage; returns the limit (0: none). What is not named stays, and a W that gave back what F and I
/// left goes on to. Throws InputError, also for a limit without anything to hold against it.
Bytes parse_memory(std::string_view text, CostTable& table, const CostFlag& flag = {"--mem"});

/// The costs of the same model cut into the placement's stages, equally long pieces: each stage of
/// `whole` is taken to be the same all along. Where that gives fractions, the work that a rank's
/// pieces do together is rounded up, and what each piece holds: never less than the whole has. An
/// overlapped pair shrinks likewise. Latency, bandwidth and messages stay.
CostTable resampled(const CostTable& whole, const Placement& placement);
/// Whether pieces are so small that rounding to whole ns and bytes makes 1 % of one or more.
bool cut_is_rough(const CostTable& whole, int stages);
/// With one stage a rank.
CostTable resampled(const CostTable& whole, int stages);

}  // namespace pipewright
