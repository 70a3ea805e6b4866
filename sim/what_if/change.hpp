// "And if this rank were 10 % faster?": a change of what a step costs, as data, as a word of the
// command line ("rank:3=0.9") and as a sentence. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/factor.hpp"
#include "core/order/action.hpp"

namespace pipewright::sim {

/// What changes. Pairs are overlapped pairs with a time of their own; they are of their rank, and
/// of no other kind, stage or micro-batch.
enum class WhatOf : std::uint8_t {
  Kind,  // all F, I, W, B or OPT
  Pairs,
  Messages,
  Collectives,
  Rank,  // all that it computes
  Stage,
  MicroBatch,
  Action,
  Link,          // messages from one rank to another
  Stages,        // all of them, by kind
  MicroBatches,  // all of them, by kind
};

enum class Becomes : std::uint8_t {
  Scaled,  // by the factor
  Mean,    // of Stages and MicroBatches
  Median,  // of a Rank: no more than the median elsewhere
};

struct Change {
  WhatOf of = WhatOf::Kind;
  Becomes becomes = Becomes::Scaled;
  Factor factor = {};
  ActionKind kind = ActionKind::F;  // of a Kind
  int number = 0;                   // of a Rank, Stage or MicroBatch; of a Link where it begins
  int to = 0;                       // of a Link where it ends
  Cell action = {};                 // of an Action

  bool operator==(const Change&) const = default;
};

/// What "10 % faster" means.
inline constexpr Factor kTenthFaster{900'000};

/// "F=0.9", "OPT=2", "pairs=0.9", "messages=0", "collectives=0.5", "rank:3=0.9", "stage:2=0.9",
/// "micro-batch:5=0.9", "action:2F5=0.9", "link:0-1=0.9", "rank:3=median", "stages=mean",
/// "micro-batches=mean". One or more between commas. Throws InputError, beginning with `what` and
/// the change at fault.
std::vector<Change> parse_changes(std::string_view text, const std::string& what);
/// As it is read.
std::string to_string(const Change& change);
std::string to_string(const std::vector<Change>& changes);

/// "rank 3: 10 % faster", "messages: free", "stages balanced".
std::string in_words(const std::vector<Change>& changes);

}  // namespace pipewright::sim
