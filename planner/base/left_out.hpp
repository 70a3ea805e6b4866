// Why a search leaves a configuration out, and how many it has left out for each reason. What a
// search says, a plan records and a journal keeps are the sentences of one table. Pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pipewright::planner {

/// In the order in which a search meets them; the sentences are in left_out.cpp.
enum class LeftOut : std::uint8_t {
  // Degrees and batches that a transformer, its devices and its batch do not allow.
  MoreThanDevices,
  NoDivisorOfDevices,
  ReplicasOfBatch,
  SizeOfSamples,
  ReplicasOutermost,
  NoDivisorOfHeads,
  NoDivisorOfLoraRank,
  Interleaving,
  ZeroWithPipeline,
  ShardsOfReplicas,
  ExpertsApart,
  SequenceWithoutTensor,
  MoreStagesThanLayers,
  /// What no search tries: only what somebody names can be forbidden so.
  Forbidden,
  // The same of a model that is planned layer by layer.
  MoreRanksThanDevices,
  MoreRanksThanCores,
  FewerLayersThanStages,
  ReplicasOfGlobalBatch,
  StepsOfGlobalBatch,
  SizeOfGlobalBatch,
  NotGlobalBatch,
  SizeNotProfiled,
  SelectiveWithoutAttention,
  IndivisibleLayers,
  IndivisibleRows,
  IndivisibleSequences,
  ContextBesideOthers,
  ExpertsAcrossGroups,
  UnevenDivision,
  // What is the same as another configuration, or gains nothing.
  SameRankOrder,
  WorseRankOrder,
  SameNodes,
  // What a schedule does not do.
  OutsideConstraint,  // of the schedule that the reason names
  AsynchronousWithReplicas,
  AsynchronousWithDividedLayers,
  AsynchronousWithTiedHead,
  AsynchronousWithClipping,
  MixedSpeeds,
  UnevenSchedule,
  OrderByCosts,
  // What is known of its stages.
  SameCut,
  SameByRank,
  TooLarge,
  OverMemory,
  AlikeRecompute,
  Stuck,  // the only one that is simulated before it is left out
  // What the search has decided.
  NotExecutable,
  TooSlowForTable,
  TooSlowForBaseline,
  TooSlowForFront,
  OverBudget,
  // What the closed estimate has decided, which looks at nothing but devices.
  SlowerByBound,
  OverDeviceMemory,
};

/// A reason, and whose it is where each schedule has its own.
struct LeftOutReason {
  // Implicit: nearly all reasons are the enumerator alone.
  LeftOutReason(LeftOut reason, std::string_view of = {}) : why(reason), schedule(of) {}

  LeftOut why;
  std::string_view schedule;  // a name of the registry, with OutsideConstraint; else empty

  auto operator<=>(const LeftOutReason&) const = default;
};

/// "over the memory limit", "outside the constraint of zbv".
std::string sentence_of(const LeftOutReason& reason);
/// The reason with this sentence; nullopt: there is none, or it is a schedule's own.
std::optional<LeftOut> left_out_of(std::string_view sentence);

using LeftOutCounts = std::map<LeftOutReason, std::int64_t>;
/// Of a reason that is a rule, the first case in full: what is wrong, and what would do.
using LeftOutExamples = std::map<LeftOutReason, std::string>;

/// What a search left out so far.
struct LeftOutTally {
  LeftOutCounts counts;
  LeftOutExamples examples;

  void add(const LeftOutReason& reason) { ++counts[reason]; }
  /// `example` makes the case in full, and is called for the first of its reason.
  template <class Example>
  void add(const LeftOutReason& reason, const Example& example) {
    if (++counts[reason] == 1) examples.try_emplace(reason, example());
  }
};

void add_counts(const LeftOutCounts& more, LeftOutCounts& counts);
std::int64_t sum_of(const LeftOutCounts& counts);

/// As people read them and files have them: ordered by sentence.
template <class Value>
std::map<std::string, Value> by_sentence(const std::map<LeftOutReason, Value>& values) {
  std::map<std::string, Value> sorted;
  for (const auto& [reason, value] : values) sorted.emplace(sentence_of(reason), value);
  return sorted;
}

/// Why something is not possible: the rule that a search counts, and the case in full, what is
/// wrong and what would do.
struct Refusal {
  LeftOut rule = LeftOut::Forbidden;
  std::string sentence;
};

}  // namespace pipewright::planner
