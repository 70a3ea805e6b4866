// Reads a sequence of NCCL calls back into a Program, so that check judges what would really be
// called, and not only the Program it was made from. The policy is read off the calls: which of
// them share a line (a communicator or a stream serves first in, first served), which stand in a
// group, which are on the stream that computes. Every send meets its receive, since NCCL promises
// nothing else. Pure functions; nothing of the Program that the calls came from is used.
#pragma once

#include <string>
#include <vector>

#include "core/order/order.hpp"
#include "core/program/program.hpp"
#include "exec/transports/nccl/calls.hpp"

namespace pipewright::exec::nccl {

struct ReadBack {
  Order order;  // each rank's calls in the order of its host
  Program program;
  /// What no Program says but the calls have wrong, in words: an event that is waited for before it
  /// is recorded, an input that no event orders, a peer that is not the tensor's other rank, lines
  /// that no policy gives. Empty: `program` says all there is to say.
  std::vector<std::string> problems;
};

/// `fragment`: the calls are those of a part of a step (LowerOptions).
ReadBack read_back(const StepCalls& step, bool fragment = false);

}  // namespace pipewright::exec::nccl
