// Why a configuration is not the plan: what the search would do with it, in sentences. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/profile.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

struct Explanation {
  std::vector<std::string> sentences;
  /// What was simulated of it, the memory limit aside; nothing where a rule forbids it.
  std::optional<Candidate> candidate;
  bool is_possible = false;  // it keeps to the rules and the memory
};

/// `configuration`: "tp=4,pp=8,schedule=1f1b": keys schedule, tp, pp, dp, cp, cp_comm_type, ep,
/// etp, vpp, micro_batch_size, micro_batches, recompute (none, selective, full, by-stage, or one
/// for each stage: full+full+none), sequence_parallel, zero, node_order, rank_order and partition.
/// What it leaves out is taken from the best configuration that has what it names; that one is
/// searched for with the threads and the progress of `options`. The first sentence is the answer.
/// Throws InputError for what it does not understand.
Explanation explain(const Job& job, const Profile* profile, int cores, const SearchResult& found,
                    const std::string& configuration, const SearchOptions& options = {});

}  // namespace pipewright::planner
