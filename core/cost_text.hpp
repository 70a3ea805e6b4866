// Costs and memory as people write them on a command line, and the same model cut into another
// number of stages.
#pragma once

#include <string_view>

#include "core/costs.hpp"
#include "core/placement.hpp"

namespace pipewright {

/// `--cost F=1ms,I=..,W=..,B=..,FB=..,OPT=..,comm=..` for `stages` stages: integers in ns or with a
/// unit; F, I, W, B and OPT also one value a stage, with colons: `F=1ms:2ms:1ms`. B defaults to
/// I + W, and I and W to halves of B where only B is said. `flag`, for messages: one that begins
/// with --rank has a value for each rank. Throws InputError.
CostTable parse_costs(std::string_view text, int stages, std::string_view flag = "--cost");
/// `--mem F=..,I=..,W=..,constant=..,version=..,limit=..` into table.memory, one value or one a
/// stage; returns the limit (0: none).
Bytes parse_memory(std::string_view text, CostTable& table, std::string_view flag = "--mem");

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
