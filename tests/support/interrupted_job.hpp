// `pipewright run` as threads of one process, as processes that meet over sockets, or under mpirun,
// with a signal at a moment, and how each of its processes ended.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {

enum class JobKind { Threads, Tcp, Mpi };

struct Interruption {
  std::chrono::microseconds after{0};  // from when all processes have begun
  int signal = 0;                      // 0: the job is left alone
  int target = -1;                     // a rank; -1: all of them, or mpirun, which tells them
};

struct EndedJob {
  /// By rank as a shell says it: 128 + number if a signal ended it. Under mpirun -1 for a rank that
  /// was not started any more.
  std::vector<int> statuses;
  std::string words;                  // of all processes, on both streams
  std::chrono::microseconds took{0};  // until all had ended
  /// Some did not leave by themselves and were told to, as a launcher does it.
  bool was_told = false;
  std::vector<std::string> left_behind;  // processes that were there when all had ended
};

/// Two ranks. Output goes into a folder beside `folder`, in which they run. What does not leave
/// within a minute is killed and counts as left behind.
EndedJob run_interrupted(JobKind kind, const std::string& words, const Folder& folder,
                         const Interruption& interruption);

}  // namespace pipewright::test
