#include "planner/configurations/requested_divisions.hpp"

#include <algorithm>

#include "core/model/context_split.hpp"
#include "core/model/expert_fold.hpp"
#include "planner/configurations/requested_values.hpp"

namespace pipewright::planner {

std::vector<int> asked_tensor(const Job& job) {
  std::vector<int> asked = asked_numbers(job.strategy.mp_degree, "mp_degree");
  if (!asked.empty()) return asked;
  return job.strategy.opens_mp_degree ? divisors(job.cluster.devices()) : std::vector<int>{1};
}

std::vector<int> asked_context(const Job& job) {
  std::vector<int> asked = asked_numbers(job.strategy.cp_degree, "cp_degree");
  if (!asked.empty()) return asked;
  asked = {1};
  if (!job.strategy.opens_cp_degree) return asked;
  for (const int ranks : divisors(job.cluster.devices())) {
    if (ranks > 1 && context_fault(job.model, ranks).empty()) asked.push_back(ranks);
  }
  return asked;
}

std::vector<bool> asked_ring(const Job& job) {
  std::vector<bool> asked;
  for (const std::string& type : job.strategy.cp_comm_type) asked.push_back(type == "p2p");
  if (!asked.empty()) return asked;
  return job.strategy.opens_cp_comm_type ? std::vector<bool>{false, true}
                                         : std::vector<bool>{false};
}

std::vector<int> asked_experts(const Job& job) {
  std::vector<int> asked = asked_numbers(job.strategy.ep_degree, "ep_degree");
  if (!asked.empty()) return asked;
  asked = {1};
  if (!job.strategy.opens_ep_degree) return asked;
  for (const int ranks : divisors(job.cluster.devices())) {
    if (ranks > 1 && expert_fault(job.model, ranks).empty()) asked.push_back(ranks);
  }
  return asked;
}

std::vector<int> asked_expert_tensor(const Job& job) {
  const std::vector<int> asked =
      asked_numbers(job.strategy.expert_tensor_parallel_size, "expert_tensor_parallel_size");
  if (!asked.empty()) return asked;
  return job.strategy.opens_expert_tensor_parallel_size ? std::vector<int>{0, 1}
                                                        : std::vector<int>{0};
}

std::vector<bool> asked_rows(const Job& job) {
  std::vector<bool> asked = asked_flags(job.strategy.use_sequence_parallel);
  if (!asked.empty()) return asked;
  return job.strategy.opens_sequence_parallel ? std::vector<bool>{false, true}
                                              : std::vector<bool>{false};
}

std::vector<StageDivision> divisions_of(const Job& job) {
  std::vector<StageDivision> along_one, along_both;
  for (const int tensor : asked_tensor(job)) {
    if (tensor > 1 && tensor_fault(job.model, tensor).empty()) along_one.push_back({tensor, 1});
  }
  const std::vector<StageDivision> along_tp = along_one;
  for (const int experts : asked_experts(job)) {
    if (experts == 1 || !expert_fault(job.model, experts).empty()) continue;
    along_one.push_back({1, experts});
    for (const StageDivision& one : along_tp) along_both.push_back({one.tensor, experts});
  }
  along_one.insert(along_one.end(), along_both.begin(), along_both.end());
  along_one.emplace_back();
  std::vector<StageDivision> all;
  const auto add = [&](const StageDivision& ranks, int experts, int expert_tensor) {
    const StageDivision division = division_with_experts(ranks, experts, expert_tensor);
    if (division != StageDivision{} && expert_fault(job.model, division).empty() &&
        std::find(all.begin(), all.end(), division) == all.end())
      all.push_back(division);
  };
  for (const StageDivision& one : along_one) {
    for (const bool rows : asked_rows(job)) {
      if (rows && !sequence_fault(job.model, one.tensor).empty()) continue;
      for (const int context : asked_context(job)) {
        for (const bool ring : context > 1 ? asked_ring(job) : std::vector<bool>{false}) {
          const StageDivision ranks{
              .tensor = one.tensor, .rows = rows, .context = context, .ring = ring};
          if (!context_fault(job.model, ranks).empty()) continue;
          for (const int each : asked_expert_tensor(job)) add(ranks, one.experts, each);
        }
      }
    }
  }
  return all;
}

std::vector<int> replicas_to_measure(const Job& job) {
  std::vector<int> tried = asked_numbers(job.strategy.dp_degree, "dp_degree");
  if (tried.empty()) tried = divisors(job.cluster.devices());
  std::ranges::sort(tried);
  std::vector<int> measured;
  if (tried.front() == 1) measured.push_back(1);
  const auto more = std::ranges::upper_bound(tried, 1);
  if (more != tried.end()) measured.push_back(*more);
  return measured;
}

}  // namespace pipewright::planner
