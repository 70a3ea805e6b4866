// The dumps of all ranks of a job, with the groups that they speak of.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "sim/dumps/dump.hpp"

namespace pipewright::sim {

struct DumpedJob {
  std::vector<Dump> dumps;            // by rank; their calls' groups are those below
  std::vector<RecordedGroup> groups;  // those of one name and the same ranks once, with ranks

  int ranks() const { return static_cast<int>(dumps.size()); }
};

/// The ranks of groups, by name, for what the dumps do not say.
using NamedRanks = std::map<std::string, std::vector<RankId>>;

/// Throws InputError where a rank has no dump or two, or dumps are of jobs of other sizes.
DumpedJob join_dumps(std::vector<Dump> dumps, const NamedRanks& named = {});

}  // namespace pipewright::sim
