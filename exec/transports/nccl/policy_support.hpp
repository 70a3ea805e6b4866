// How NCCL gives what a communication policy asks for, field by field, and what it cannot give.
// The sources are NCCL's own guarantees: "usage/p2p" of its guide (a send or receive blocks the
// stream until it is done; calls of one group progress independently except those to one peer) and
// the source of 2.28 (one first-in-first-served line a communicator). Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.hpp"

namespace pipewright::exec::nccl {

/// A field of the policy, its value, and what is done for it.
struct PolicyField {
  std::string_view field;
  std::string value;
  std::string how;
};

/// All fields of a policy that refusals_of() lets pass, in the order of CommPolicy.
std::vector<PolicyField> policy_fields(const CommPolicy& policy);

/// Why the Program cannot be given to NCCL, one sentence each with what to do; empty: it can. Says
/// nothing of deadlocks: that is check's affair.
std::vector<std::string> refusals_of(const Program& program);

}  // namespace pipewright::exec::nccl
