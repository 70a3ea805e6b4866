// Section 7.2 of docs/semantics.md: a cycle among the computations of an order that leaves its
// transfers to lowering.
#pragma once

#include <string>
#include <vector>

#include "tests/reference/program.hpp"

namespace pipewright::reference {

struct CauseElement {
  int rank = 0;
  std::string instruction, waits_for, through, behind;  // through: "" within a rank
};

/// Empty if the computations alone end.
[[nodiscard]] std::vector<CauseElement> cause_of(const Program& program);

}  // namespace pipewright::reference
