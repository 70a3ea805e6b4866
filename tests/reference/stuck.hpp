// Section 7: the verdict on a Program that has come to its end, and where it stands.
#pragma once

#include <string>
#include <vector>

#include "tests/reference/program.hpp"
#include "tests/reference/run.hpp"

namespace pipewright::reference {

enum class Verdict { Ok, Deadlock, Mismatch, Invalid };
[[nodiscard]] std::string to_string(Verdict verdict);

struct Head {
  int rank = 0;
  int lane = 0;  // its number within the rank, 7.1
  std::string instruction;
};

struct CycleElement {
  int rank = 0;
  std::string instruction, waits_for, behind;
};

struct Mismatch {
  int rank = 0;  // of the RECV
  std::string recv, send;
};

struct Stuck {
  Verdict verdict = Verdict::Ok;
  std::vector<Head> heads;  // by rank, then lane
  std::vector<CycleElement>
      cycle;  // of a deadlock; empty if it is one of a fragment that waits for the outside
  std::vector<Mismatch> mismatches;  // those reached, by rank of the RECV, then program order
};

[[nodiscard]] Stuck judge(const Program& program, const Run& run, bool fragment);

}  // namespace pipewright::reference
