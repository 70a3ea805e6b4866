#include "planner/base/left_out.hpp"

#include <algorithm>
#include <array>

namespace pipewright::planner {
namespace {

using Row = std::pair<LeftOut, std::string_view>;

constexpr std::array kSentences{
    Row{LeftOut::MoreThanDevices, "tp * pp * cp * dp is more than the devices; lower one of them"},
    Row{LeftOut::NoDivisorOfDevices,
        "tp * pp * cp does not divide the devices; take divisors of them, or name dp and leave "
        "some idle"},
    Row{LeftOut::ReplicasOfBatch, "dp does not divide the global batch"},
    Row{LeftOut::SizeOfSamples, "the micro-batch size does not divide a replica's samples"},
    Row{LeftOut::ReplicasOutermost, "ep with replicas outermost"},
    Row{LeftOut::NoDivisorOfHeads, "tp does not divide the heads"},
    Row{LeftOut::NoDivisorOfLoraRank, "tp does not divide the rank of LoRA's adapters"},
    Row{LeftOut::Interleaving, "interleaving needs m in multiples of pp"},
    Row{LeftOut::ZeroWithPipeline, "ZeRO 2 and 3 with a pipeline"},
    Row{LeftOut::ShardsOfReplicas,
        "dp is no multiple of the replicas that divide one another's state, or ep needs more of "
        "them"},
    Row{LeftOut::ExpertsApart, "ep divides experts and replicas"},
    Row{LeftOut::SequenceWithoutTensor, "sequence parallel without tp"},
    Row{LeftOut::MoreStagesThanLayers, "more stages than layers"},
    Row{LeftOut::Forbidden, "a rule forbids it"},
    Row{LeftOut::MoreRanksThanDevices, "more ranks than devices"},
    Row{LeftOut::MoreRanksThanCores, "more ranks than cores"},
    Row{LeftOut::FewerLayersThanStages, "fewer layers than stages"},
    Row{LeftOut::ReplicasOfGlobalBatch, "dp_degree does not divide the global batch"},
    Row{LeftOut::StepsOfGlobalBatch, "accumulate_steps does not divide the global batch"},
    Row{LeftOut::SizeOfGlobalBatch, "micro_batch_size does not divide the global batch"},
    Row{LeftOut::NotGlobalBatch,
        "dp_degree, accumulate_steps and micro_batch_size are not the global batch"},
    Row{LeftOut::SizeNotProfiled, "micro-batch size not profiled"},
    Row{LeftOut::SelectiveWithoutAttention, "selective recompute, without attention"},
    Row{LeftOut::IndivisibleLayers,
        "tp does not divide the heads or columns of the model's layers"},
    Row{LeftOut::IndivisibleRows, "sequence parallel, and tp does not divide the sequence"},
    Row{LeftOut::IndivisibleSequences, "cp does not divide the model's sequences"},
    Row{LeftOut::ContextBesideOthers, "rows that cp beside sequence parallelism does not divide"},
    Row{LeftOut::ExpertsAcrossGroups, "sharding_degree is no multiple of ep"},
    Row{LeftOut::UnevenDivision, "divided layers, where devices or samples are not alike"},
    Row{LeftOut::SameRankOrder, "the other rank order costs the same"},
    Row{LeftOut::WorseRankOrder, "the other rank order gains nothing"},
    Row{LeftOut::SameNodes, "every rank on the same nodes as in another order of the nodes"},
    Row{LeftOut::OutsideConstraint, "outside the constraint of "},  // and the schedule's name
    Row{LeftOut::AsynchronousWithReplicas, "asynchronous, with replicas"},
    Row{LeftOut::AsynchronousWithDividedLayers, "asynchronous, with layers divided by tp"},
    Row{LeftOut::AsynchronousWithTiedHead, "asynchronous, with a tied head"},
    Row{LeftOut::AsynchronousWithClipping,
        "asynchronous, with clip_grad_norm: its ranks update at different times, so there is no "
        "common norm"},
    Row{LeftOut::MixedSpeeds, "stages on several ranks, which differ in speed"},
    Row{LeftOut::UnevenSchedule,
        "pairs, stages on several ranks, or updates inside the step, where devices or samples are "
        "not alike"},
    Row{LeftOut::OrderByCosts, "recompute by stage, where the order follows from the costs"},
    Row{LeftOut::SameCut, "same stages by cost and by number of layers"},
    Row{LeftOut::SameByRank, "same stages by rank as by stage"},
    Row{LeftOut::TooLarge, "too large to simulate"},
    Row{LeftOut::OverMemory, "over the memory limit"},
    Row{LeftOut::AlikeRecompute,
        "recompute by stage, where the least that fits is the same for all stages"},
    Row{LeftOut::Stuck, "does not end under the policy"},
    Row{LeftOut::NotExecutable, "run cannot execute it"},
    Row{LeftOut::TooSlowForTable, "too slow at best for the table"},
    Row{LeftOut::TooSlowForBaseline, "too slow at best for the baseline"},
    Row{LeftOut::TooSlowForFront, "too slow at best for the front"},
    Row{LeftOut::OverBudget, "not looked at: the budget ran out"},
    Row{LeftOut::SlowerByBound, "slower by the bound"},
    Row{LeftOut::OverDeviceMemory, "over memory"},
};

constexpr bool has_a_row_for_each() {
  for (std::size_t i = 0; i < kSentences.size(); ++i) {
    if (kSentences[i].first != static_cast<LeftOut>(i)) return false;
  }
  return kSentences.back().first == LeftOut::OverDeviceMemory;
}
static_assert(has_a_row_for_each(), "the rows stand in the order of the enumerators");

}  // namespace

std::string sentence_of(const LeftOutReason& reason) {
  return std::string(kSentences[static_cast<std::size_t>(reason.why)].second) +
         std::string(reason.schedule);
}

std::optional<LeftOut> left_out_of(std::string_view sentence) {
  const auto row = std::find_if(kSentences.begin(), kSentences.end(),
                                [&](const Row& one) { return one.second == sentence; });
  if (row == kSentences.end() || row->first == LeftOut::OutsideConstraint) return std::nullopt;
  return row->first;
}

void add_counts(const LeftOutCounts& more, LeftOutCounts& counts) {
  for (const auto& [reason, number] : more) counts[reason] += number;
}

std::int64_t sum_of(const LeftOutCounts& counts) {
  std::int64_t sum = 0;
  for (const auto& [reason, number] : counts) sum += number;
  return sum;
}

}  // namespace pipewright::planner
