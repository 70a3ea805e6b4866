// The timers that Megatron-LM prints in its training log (megatron/core/timers.py): every so many
// iterations, the mean time of one on each rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::traces {

/// The most that is read of a log.
inline constexpr std::uint64_t kMostLogBytes = std::uint64_t{1} << 30;
inline constexpr int kMostTimedRanks = 1 << 20;
/// The timer of a step's forward and backward passes together.
inline constexpr const char* kPassesTimer = "forward-backward";

/// What one print of the timers says: times in nanoseconds, of one iteration.
struct TimedIterations {
  std::optional<std::int64_t> last;     // iteration of the line before it
  std::optional<std::int64_t> step_ns;  // that line's "elapsed time per iteration"
  /// By timer, for each rank; 0 where it printed none.
  std::map<std::string, std::vector<std::int64_t>, std::less<>> times;
};

/// Whether a log has timers, in any of the three forms (--timing-log-option all, minmax, max).
bool has_megatron_timers(std::string_view log);

/// Reads every print of the form `all`, whatever stands before and between its lines (a launcher's
/// prefix such as "[default0]:", a date). What is printed of setting up, or cut off before it has
/// kPassesTimer, is left out where others have it. Ranks are as many as the largest number
/// says. Throws InputError naming `file` where there is none of that form, or a line of it cannot
/// be.
std::vector<TimedIterations> read_megatron_timers(std::string_view log, const std::string& file);

}  // namespace pipewright::traces
