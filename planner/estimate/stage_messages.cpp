#include "planner/estimate/stage_messages.hpp"

#include <algorithm>
#include <numeric>

#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {

namespace {

/// Bytes that one rank sends forward, and back.
BorderSeconds border_bytes(const Architecture& model, const FrameworkTraits& framework,
                           const ParallelSetup& setup) {
  const double part = hop_bytes(model, setup), whole = part * setup.tensor;
  const double side = static_cast<double>(model.sequence);
  return {part + (framework.sends_mask ? 2 * side * side : 0),
          framework.sends_whole_gradients ? whole : part, 0};
}

/// Tensor parallel ranks put the parts of an activation together again: the receiver before its
/// forward, the sender before its backward.
double whole_seconds(const Architecture& model, const Machine& machine, const ParallelSetup& setup,
                     int rank) {
  const NodeRates node = slowest_node(machine, setup, rank);
  const double whole = hop_bytes(model, setup) * setup.tensor;
  return gather_seconds(node, machine.devices_per_node, {setup.tensor, 1}, whole);
}

/// Work of a rank with its messages, where it stands still while they move.
double with_borders(const std::vector<double>& rank_seconds,
                    const std::vector<BorderSeconds>& borders, std::size_t rank) {
  double sum = rank_seconds[rank];
  if (rank > 0) sum += borders[rank - 1].held;
  if (rank < borders.size()) sum += borders[rank].held;
  return sum;
}

}  // namespace

std::vector<BorderSeconds> border_seconds(const Architecture& model,
                                          const FrameworkTraits& framework, const Machine& machine,
                                          const ParallelSetup& setup) {
  std::vector<BorderSeconds> borders;
  const BorderSeconds bytes = border_bytes(model, framework, setup);
  for (int rank = 0; rank + 1 < setup.pipeline; ++rank) {
    const Hop hop = hop_between(machine, setup, rank, rank + 1);
    BorderSeconds border{hop.latency + bytes.forward / hop.bytes_per_second,
                         hop.latency + bytes.backward / hop.bytes_per_second, 0};
    if (framework.gathers_activations) {
      border.forward += whole_seconds(model, machine, setup, rank + 1);
      border.backward += whole_seconds(model, machine, setup, rank);
    }
    if (bytes.forward > kBufferBytes) border.held += border.forward;
    if (bytes.backward > kBufferBytes) border.held += border.backward;
    borders.push_back(border);
  }
  return borders;
}

PipelineSeconds pipeline_seconds(const FrameworkTraits& framework, const ParallelSetup& setup,
                                 const std::vector<double>& rank_seconds,
                                 const std::vector<BorderSeconds>& borders) {
  const double most = *std::max_element(rank_seconds.begin(), rank_seconds.end());
  const double sum = std::accumulate(rank_seconds.begin(), rank_seconds.end(), 0.0);
  const double m = setup.micro_batches;
  double once = 0, longest = 0;  // over every border, both ways; over one, one way
  for (const BorderSeconds& border : borders) {
    once += border.forward + border.backward;
    longest = std::max({longest, border.forward, border.backward});
  }
  // The busiest rank's work, the others once to fill and drain (a chunk of each when interleaved,
  // arXiv:2104.04473 §2.2).
  const double without = m * most + (sum - most) / setup.chunks;
  if (borders.empty()) return {without, 0};
  if (!framework.waits_for_messages) {
    // A message on every border in the fill and the drain, and in between one for each micro-batch
    // and chunk, since only one of its two directions finds work to hide behind.
    const double transfers = once + (m - 1) * setup.chunks * longest;
    return {without + transfers, transfers};
  }
  double busiest = 0;
  for (std::size_t rank = 0; rank < rank_seconds.size(); ++rank) {
    busiest = std::max(busiest, with_borders(rank_seconds, borders, rank));
  }
  const double all = (m - 1) * busiest + sum + once;
  return {all, all - without};
}

}  // namespace pipewright::planner
