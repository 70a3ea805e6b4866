// A configuration written as text, "tp=4,pp=8,schedule=1f1b": what --explain and a measured step
// name. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "planner/branches/branch.hpp"
#include "planner/configurations/candidate.hpp"

namespace pipewright::planner {

/// By key, as the text has them.
using RequestedValues = std::map<std::string, std::string>;
/// Throws InputError for a text that is not a list of keys and values.
RequestedValues read_requested(const std::string& text);

/// The schedule of a text that names replicas of stages and no schedule.
inline constexpr const char* kReplicatedSchedule = "1f1b-rr";

struct NamedConfiguration {
  Configuration configuration;
  // Why devices or batch forbid it; empty: they do not.
  std::string too_many_devices, other_batch;
};

/// Keys: schedule, tp, pp, dp, cp, cp_comm_type, ep, etp, vpp, replicas (2,1,1: ranks of each stage
/// of 1f1b-rr; left out: the schedule's default), micro_batch_size, micro_batches, recompute,
/// sequence_parallel, zero, node_order, rank_order and partition. recompute is none, selective,
/// full, by-stage, or one of the first three for each stage ("full+full+none"). What is left out is
/// as in `otherwise`, or without it 1, off, 1f1b and file; then dp and micro_batches are what is
/// left of devices and batch. Throws InputError for what it does not understand.
NamedConfiguration read_configuration(const std::string& text, const Job& job,
                                      const Candidate* otherwise);

/// A row as such a text, from which read_configuration() makes it again.
std::string text_of(const Candidate& candidate);

/// One sentence where a rule forbids it.
std::optional<std::string> broken_rule(const NamedConfiguration& named, const Job& job,
                                       const ConfigurationCosts& costs);

/// Its stages and bound. Recompute by stage is what the search would choose, and where nothing
/// fits, the most for each stage. Needs !broken_rule().
Branch branch_of(const Configuration& configuration, const ConfigurationCosts& costs);

}  // namespace pipewright::planner
