// Calls of a dump that are one operation. Part of read_dump().
#pragma once

#include <vector>

#include "sim/dumps/dump.hpp"

namespace pipewright::sim {

/// Calls of a group that follow one another with one number are an operation. Its closing entry
/// ("nccl:coalesced") is taken out, and its state, which the calls themselves do not get, is
/// theirs.
void join_batches(std::vector<RecordedCall>& calls);

}  // namespace pipewright::sim
