#include "planner/estimate/setup.hpp"

#include <numeric>

namespace pipewright::planner {

namespace {

std::string number(int value) { return std::to_string(value); }

std::optional<Refusal> refusal_of_tensor(const Architecture& model, const ParallelSetup& setup) {
  if (model.heads % setup.tensor != 0) {
    return Refusal{LeftOut::NoDivisorOfHeads, "tp = " + number(setup.tensor) +
                                                  " does not divide the " + number(model.heads) +
                                                  " heads; take a divisor of them"};
  }
  // Megatron core gives each rank a part of either half, so that causal scores are dealt out evenly
  // (core/utils.py, get_batch_on_this_cp_rank).
  if (setup.context > 1 && model.sequence % (2 * setup.context) != 0) {
    return Refusal{LeftOut::IndivisibleSequences,
                   "cp = " + number(setup.context) + " cuts a sequence into " +
                       number(2 * setup.context) + " parts, which do not divide its " +
                       number(model.sequence) + " tokens; take a divisor of half of them"};
  }
  // Of layers divided by columns A is divided by the rank (Megatron core, ColumnParallelLinear).
  const bool divides_rank =
      is_adapted(model, LoraPlace::Qkv) || is_adapted(model, LoraPlace::First);
  if (divides_rank && model.lora.rank % setup.tensor != 0) {
    return Refusal{LeftOut::NoDivisorOfLoraRank,
                   "tp = " + number(setup.tensor) + " does not divide the adapters' rank, " +
                       number(model.lora.rank) + "; take a divisor of it"};
  }
  if (setup.sequence_parallel && setup.tensor == 1) {
    return Refusal{LeftOut::SequenceWithoutTensor,
                   "sequence parallel divides the work of tensor parallel ranks, so tp has to "
                   "be at least 2"};
  }
  return std::nullopt;
}

/// A stage's ranks are experts' replicas times expert parallel ranks times those that divide an
/// expert (Megatron-LM, core/parallel_state.py).
std::optional<Refusal> refusal_of_experts(const Architecture& model, const ParallelSetup& setup) {
  const int split = setup.expert_tensor(), ranks = setup.tensor * setup.data * setup.context;
  if (setup.experts == 1 && split == setup.tensor) return std::nullopt;
  if (model.experts.count == 0 || model.experts.count % setup.experts != 0 ||
      ranks % (setup.experts * split) != 0) {
    return Refusal{LeftOut::ExpertsApart, "ep = " + number(setup.experts) + " has to divide the " +
                                              number(model.experts.count) + " experts and the " +
                                              number(ranks / split) + " replicas"};
  }
  if (split != setup.tensor && split != 1) {
    return Refusal{LeftOut::ExpertsApart,
                   "etp = " + number(split) + ": each expert is divided by tp, or by nothing"};
  }
  // Else tensor parallel ranks would send the same tokens.
  if (split < setup.tensor && !setup.sequence_parallel) {
    return Refusal{LeftOut::ExpertsApart,
                   "etp = " + number(split) + " of tp = " + number(setup.tensor) +
                       " needs sequence parallelism, which deals tokens out to tensor parallel "
                       "ranks"};
  }
  return std::nullopt;
}

/// Groups of replicas have to be equal, and each to hold all experts as often.
std::optional<Refusal> refusal_of_shards(const ParallelSetup& setup) {
  if (setup.zero == 0 || setup.shards == 0) return std::nullopt;
  if (setup.shards < 1 || setup.data % setup.shards != 0) {
    return Refusal{LeftOut::ShardsOfReplicas,
                   number(setup.shards) +
                       " replicas are to divide one another's state, which is "
                       "no divisor of dp = " +
                       number(setup.data) + "; take one, or leave it out"};
  }
  if (setup.expert_replicas() % setup.shard_groups() != 0) {
    return Refusal{LeftOut::ShardsOfReplicas,
                   number(setup.shards) +
                       " replicas do not hold all that ep = " + number(setup.experts) +
                       " divides; let more of them divide one another's state, or take less ep"};
  }
  return std::nullopt;
}

std::optional<Refusal> refusal_of_pipeline(const Architecture& model, const ParallelSetup& setup) {
  if (!setup.blocks_of_rank.empty()) {
    const int sum = std::accumulate(setup.blocks_of_rank.begin(), setup.blocks_of_rank.end(), 0);
    if (static_cast<int>(setup.blocks_of_rank.size()) != setup.pipeline || sum != model.blocks) {
      return Refusal{LeftOut::Forbidden, "the layers by stage have to be " +
                                             number(setup.pipeline) + " numbers that add up to " +
                                             number(model.blocks)};
    }
    return std::nullopt;
  }
  if (setup.pipeline * setup.chunks > layers_of(model)) {
    return Refusal{LeftOut::MoreStagesThanLayers,
                   "pp * vpp = " + number(setup.pipeline * setup.chunks) + " stages, but only " +
                       number(layers_of(model)) +
                       " layers with embedding and head; take fewer stages"};
  }
  if (setup.chunks > 1 && setup.micro_batches % setup.pipeline != 0) {
    return Refusal{
        LeftOut::Interleaving,
        "interleaving needs micro-batches in multiples of pp = " + number(setup.pipeline) +
            ", found " + number(setup.micro_batches) + "; the next is " +
            number((setup.micro_batches / setup.pipeline + 1) * setup.pipeline)};
  }
  return std::nullopt;
}

}  // namespace

std::string ParallelSetup::expert_tensor_fault() const {
  if (expert_tensor() == tensor) return "";
  if (expert_tensor() > 1)
    return "expert_tensor_parallel_size " + number(expert_tensor()) +
           ": each expert is whole, or divided as tp " + number(tensor) +
           " divides layers; take 1" + (tensor > 1 ? " or " + number(tensor) : "");
  return fold_fault({tensor, 1, sequence_parallel, context}, data, experts);
}

std::string_view name_of(RankOrder order) {
  return order == RankOrder::DataOutermost ? "tp-cp-pp-dp" : "tp-cp-dp-pp";
}

std::optional<Refusal> refusal(const Architecture& model, const Machine& machine,
                               const ParallelSetup& setup) {
  for (const int degree :
       {setup.tensor, setup.data, setup.pipeline, setup.chunks, setup.experts,
        setup.expert_tensor(), setup.context, setup.micro_batch_size, setup.micro_batches}) {
    if (degree < 1)
      return Refusal{LeftOut::Forbidden, "every degree and every size has to be at least 1"};
  }
  if (machine.nodes.size() > 1 &&
      setup.devices() > static_cast<int>(machine.nodes.size()) * machine.devices_per_node) {
    return Refusal{LeftOut::Forbidden,
                   number(setup.devices()) + " devices are asked for, the machine has " +
                       number(static_cast<int>(machine.nodes.size()) * machine.devices_per_node)};
  }
  if (const auto reason = refusal_of_experts(model, setup)) return reason;
  // Megatron-LM asserts it (core/parallel_state.py): experts are divided among replicas that lie
  // side by side, and the same ranks have to make up a pipeline.
  if (setup.experts > 1 && setup.order.of_ranks == RankOrder::DataOutermost) {
    return Refusal{
        LeftOut::ReplicasOutermost,
        "the rank order " + std::string(name_of(setup.order.of_ranks)) +
            " has replicas apart, and expert parallel ranks have to lie side by side; take " +
            std::string(name_of(RankOrder::PipelineOutermost)) + ", or ep = 1"};
  }
  if (setup.zero >= 2 && setup.pipeline > 1) {
    return Refusal{LeftOut::ZeroWithPipeline,
                   "ZeRO " + number(setup.zero) +
                       " shares out gradients after every micro-batch, which a pipeline keeps "
                       "until its last; take ZeRO 1, which FSDP is in a pipeline "
                       "(reshard_after_forward off), or pp = 1"};
  }
  if (const auto reason = refusal_of_shards(setup)) return reason;
  if (const auto reason = refusal_of_tensor(model, setup)) return reason;
  return refusal_of_pipeline(model, setup);
}

int layers_of(const Architecture& model) { return model.blocks + 2; }

int blocks_of(const Architecture& model, const ParallelSetup& setup, int rank) {
  if (!setup.blocks_of_rank.empty()) return setup.blocks_of_rank[static_cast<std::size_t>(rank)];
  // What does not divide goes to the ranks in the middle: first and last have embedding and head,
  // which count as a block each where two blocks are missing (Megatron core's
  // --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split).
  const int each = model.blocks / setup.pipeline, left = model.blocks % setup.pipeline;
  const int from = (setup.pipeline - left + 1) / 2;
  return each + (rank >= from && rank < from + left ? 1 : 0);
}

}  // namespace pipewright::planner
