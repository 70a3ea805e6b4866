#include "planner/configurations/requested_divisions.hpp"

#include "core/model/context_split.hpp"
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
  for (const StageDivision& one : along_one) {
    for (const bool rows : asked_rows(job)) {
      if (rows && !sequence_fault(job.model, one.tensor).empty()) continue;
      for (const int context : asked_context(job)) {
        const StageDivision division{one.tensor, one.experts, rows, context};
        if (division != StageDivision{} && context_fault(job.model, division).empty())
          all.push_back(division);
      }
    }
  }
  return all;
}

}  // namespace pipewright::planner
