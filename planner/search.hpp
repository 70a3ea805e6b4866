// The tuner: from a job, and a profile if there is one, to ranked plans. Every configuration is cut
// into stages, lowered and simulated; the simulator's step time decides.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/job.hpp"
#include "core/plan.hpp"
#include "core/profile.hpp"

namespace pipewright::planner {

struct SearchOptions {
  int threads = 0;  // 0: as many as this machine has cores
  int cores = 0;  // cores that ranks on a shared machine divide among themselves; 0: this machine's
  int keep = 20;  // rows of the ranked table
};

/// One row of the table: a configuration and what was predicted of it.
struct Candidate {
  std::string schedule;
  int ranks = 1, chunks = 1;
  int replicas = 1;  // data parallel; `ranks` and `micro_batches` are of one
  int micro_batches = 1, micro_batch_size = 1;
  std::string partition;  // "balanced" (by cost) or "even" (by number of layers)
  std::vector<StagePlan> stages;
  Nanoseconds step;
  double bubble_ratio = 0;
  std::vector<int> peak_activations;  // by rank
  Bytes peak_bytes;                   // of the fullest rank
};

struct SearchResult {
  /// Best first: by step time, then by memory, then the simpler one. Includes the baseline where
  /// the job allows it.
  std::vector<Candidate> ranked;
  /// The best of schedule naive on several ranks and on one, where each fits. Among them are ones
  /// that the job's fixed fields rule out as a plan.
  std::vector<Candidate> baselines;
  /// ranked[0] as a plan, complete; nothing if no configuration is possible (`pruned` says why).
  std::optional<Plan> best;
  int evaluated = 0;                  // simulated
  std::map<std::string, int> pruned;  // not simulated or not possible, by reason
  std::int64_t elapsed_ns = 0;
};

/// Deterministic: neither threads nor timing change anything but elapsed_ns. What cannot be among
/// the `keep` best, by a bound that no order can beat, is not simulated. Throws InputError for a
/// job or a profile that does not make sense; that nothing fits is a result.
SearchResult search(const Job& job, const Profile* profile = nullptr,
                    const SearchOptions& options = {});

/// The rank count, schedule and batching of a row in words: "1f1b on 4 ranks, 8 micro-batches of
/// 2".
std::string describe(const Candidate& candidate);

}  // namespace pipewright::planner
