// The independent witness: a slow and obvious interpreter of docs/semantics.md (sharing `none`
// only).
//
// It shares no code with core/ and sim/. When it disagrees with them, one of the three (they, it,
// or the page) has a bug. Everything is computed again whenever it is asked for; an order of a few
// thousand actions takes seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/reference/cause.hpp"
#include "tests/reference/order.hpp"
#include "tests/reference/policy.hpp"
#include "tests/reference/stuck.hpp"

namespace pipewright::reference {

struct Timed {
  std::string instruction;
  // A transfer's start: a rendezvous when both ends are ready, an eager SEND when it leaves, its
  // RECV when it is ready.
  std::optional<std::int64_t> start, end;
};

struct RankResult {
  std::vector<Timed> instructions;  // the lowered list, in program order
  std::vector<bool> collective;     // of each: a member of a collective
  std::int64_t busy = 0, span = 0;
  int peak_activations = 0;
};

struct Result {
  Verdict verdict = Verdict::Ok;
  std::string complaint;  // why a whole order is invalid before it is run; then there are lists and
                          // nothing else
  std::vector<RankResult> ranks;
  std::int64_t makespan = 0;
  double bubble_ratio = 0, span_bubble_ratio = 0;
  std::vector<Head> stuck;
  std::vector<CycleElement> cycle;
  std::vector<CauseElement> cause;  // of a deadlock, 7.2
  std::vector<Mismatch> mismatches;
};

/// Throws std::invalid_argument if the text is no order. `fragment`: not a whole order (section 7).
[[nodiscard]] Result interpret(const std::string& csv, const Policy& policy, const Costs& costs,
                               bool fragment = false);
[[nodiscard]] Result interpret(const Order& order, const Policy& policy, const Costs& costs,
                               bool fragment = false, const Heading& heading = {});

}  // namespace pipewright::reference
