// How long a training step takes and what each pipeline rank keeps, from the model's sizes, the
// machine's rates and what runs in parallel: no profile, no simulation, microseconds of work, so a
// search can ask for every configuration. docs/cost-model.md derives it; docs/evidence/accuracy.md
// holds it against published measurements. Pure functions of their arguments; seconds and bytes.
#pragma once

#include <vector>

#include "planner/estimate/block_work.hpp"

namespace pipewright::planner {

/// One block, one micro-batch, on a pipeline rank.
struct BlockSeconds {
  double forward = 0, backward = 0;  // with what is computed again, and with the messages between
  double weight = 0;                 // of `backward`: gradients of weights, which nobody waits for
  double below_adapters = 0;         // of `backward`, that the model's first block leaves out
  double tensor_messages = 0, expert_messages = 0, context_messages = 0;  // of both together

  double messages() const { return tensor_messages + expert_messages + context_messages; }
  double both() const { return forward + backward; }
};
BlockSeconds block_seconds(const Architecture& model, const FrameworkTraits& framework,
                           const NodeRates& node, int devices_per_node, const ParallelSetup& setup,
                           BlockKind kind);

/// A step of the slowest replica, by part.
struct StepEstimate {
  double step = 0;                // the sum of the following
  double pipeline = 0;            // forwards, backwards, waiting for other stages
  double gradient_reduction = 0;  // data parallel, and the gather of weights under ZeRO
  double tied_reduction = 0;      // of an embedding that the head shares with another rank
  double update = 0;              // optimizer, and what a step costs once
  // Of `pipeline`:
  double busy = 0;                   // of the busiest rank
  double transfers = 0;              // exposed messages between stages
  std::vector<double> rank_seconds;  // forward and backward of a micro-batch, by pipeline rank
};
class KnownLayers;  // planner/estimate/layer_seconds.hpp

/// Needs a setup without a refusal(). 1F1B, interleaved where `chunks` > 1. `known`: where several
/// setups are asked for.
StepEstimate estimate_step(const Architecture& model, const FrameworkTraits& framework,
                           const Machine& machine, const ParallelSetup& setup,
                           KnownLayers* known = nullptr);

/// What a pipeline rank holds at its worst moment.
struct RankBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // of all micro-batches in flight
  double ends = 0;         // of embedding or head: their inputs and the logits
  double passing = 0;      // what lives only within one backward
  double received = 0;     // buffers of messages between stages, where they stay
  double in_flight = 0;    // micro-batches that this rank keeps activations of, in whole ranks

  double peak() const {
    return weights + gradients + optimizer + activations + ends + passing + received;
  }
  /// The largest part, as a sentence.
  std::string reason() const;
};
/// By pipeline rank. `in_flight`: chunk activations that each rank holds at most, from a
/// simulation's peak_activations or planner::closed_form_peaks(); empty: 1F1B's.
std::vector<RankBytes> estimate_memory(const Architecture& model, const FrameworkTraits& framework,
                                       const ParallelSetup& setup,
                                       const std::vector<int>& in_flight = {});

}  // namespace pipewright::planner
