// What the command's exit status says. Scripts rely on it: the numbers never change.
#pragma once

#include <array>
#include <string_view>

namespace pipewright::tools {

inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;  // deadlock, over memory, worse than --fail-if
inline constexpr int kBadInput = 2;    // usage, or a file that is wrong
inline constexpr int kMachineCannot = 3;
inline constexpr int kRunFailed = 4;  // also the watchdog, and a bug of ours
inline constexpr int kDiverged = 5;   // a loss, a gradient or a weight is no finite number
inline constexpr int kInterrupted = 130;

struct ExitStatusLine {
  int status;
  std::string_view meaning;
};

/// The table that every --help and the man page print.
inline constexpr std::array<ExitStatusLine, 7> kExitStatusTable = {{
    {kDone, "done, and the answer is yes where there is one"},
    {kAnswerIsNo, "the answer is no: deadlock, mismatch, over memory, worse than --fail-if"},
    {kBadInput, "wrong usage or bad input; one sentence on stderr says what and where"},
    {kMachineCannot, "this machine cannot: no GPU, another cluster, a missing module, a full disk"},
    {kRunFailed, "the run failed or the watchdog ended it"},
    {kDiverged,
     "the training diverged: a loss, a gradient, a weight or an output is no finite number"},
    {kInterrupted, "interrupted by Ctrl-C; no rank is left behind, no file half-written"},
}};

}  // namespace pipewright::tools
