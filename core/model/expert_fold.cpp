#include "core/model/expert_fold.hpp"

#include <iterator>
#include <set>

namespace pipewright {
namespace {

/// The numbers of ranks that can hold all experts together.
std::set<int> possible_holders(const StageDivision& ranks, int replicas) {
  std::set<int> holders{ranks.tensor};
  for (int k = 1; k <= replicas; ++k) {
    if (replicas % k == 0) holders.insert(ranks.tensor * ranks.context * k);
  }
  return holders;
}

std::string nearest(const std::set<int>& numbers, int beside) {
  const auto above = numbers.upper_bound(beside);
  if (above == numbers.begin()) return "the nearest is " + std::to_string(*above);
  const std::string below = std::to_string(*std::prev(above));
  if (above == numbers.end()) return "the nearest is " + below;
  return "the nearest are " + below + " and " + std::to_string(*above);
}

}  // namespace

std::optional<StageDivision> with_folded_experts(const StageDivision& ranks, int holders) {
  StageDivision folded = ranks;
  const int both = ranks.tensor * ranks.context;
  if (holders == ranks.tensor) {
    folded.experts = 1;
    folded.fold = ExpertFold::Tensor;
  } else if (holders % both == 0) {
    folded.experts = holders / both;
    folded.fold = ranks.context > 1 ? ExpertFold::TensorAndContext : ExpertFold::Tensor;
  } else {
    return std::nullopt;
  }
  return folded;
}

StageDivision division_with_experts(const StageDivision& ranks, int holders, int expert_tensor) {
  if (expert_tensor == 1 && ranks.tensor > 1 && ranks.rows) {
    if (const auto folded = with_folded_experts(ranks, holders)) return *folded;
  }
  StageDivision division = ranks;
  division.experts = holders;
  return division;
}

std::string fold_fault(const StageDivision& ranks, int replicas, int holders) {
  const std::string tensor = std::to_string(ranks.tensor);
  if (!ranks.rows)
    return "whole experts beside tp " + tensor +
           " (expert_tensor_parallel_size 1) need sequence parallelism, for each rank sends rows "
           "of "
           "its own; take use_sequence_parallel true, or leave out expert_tensor_parallel_size";
  const std::set<int> possible = possible_holders(ranks, replicas);
  if (possible.contains(holders)) return "";
  return "ep " + std::to_string(holders) +
         " does not deal whole experts (expert_tensor_parallel_size 1) out over tp " + tensor +
         " * cp " + std::to_string(ranks.context) + " * dp " + std::to_string(replicas) +
         ": it has to be tp, or tp * cp times a divisor of dp; " + nearest(possible, holders);
}

}  // namespace pipewright
