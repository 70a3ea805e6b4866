// What every rank holds of the model, gathered where it is wanted: straight from the stages of
// this process, as copies from other processes. To be used while all ranks stand still.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/program/program.hpp"
#include "exec/base/buffer.hpp"
#include "exec/runtime/peers.hpp"
#include "exec/training/stage.hpp"

namespace pipewright::exec::cpu {

/// By rank, in the order of its placement; none where the rank lives in another process.
using StagesOfRanks = std::vector<std::vector<const TrainableStage*>>;

/// Of devices of any kind, by rank, null where the rank lives in another process.
template <class Devices>
StagesOfRanks stages_of_ranks(const Devices& devices) {
  StagesOfRanks ranks;
  for (const auto* const device : devices) {
    auto& stages = ranks.emplace_back();
    if (device == nullptr) continue;
    for (const auto* const stage : device->stages()) stages.push_back(stage);
  }
  return ranks;
}

class StageViews {
 public:
  /// With `peers`, all processes make one at the same time. The stages must outlive it.
  StageViews(const Program& program, const StagesOfRanks& ranks, Peers* peers);

  /// How many replicas the stage with the most of them has.
  std::size_t replicas() const;
  /// The parameters of the model once each, taken from the n-th replica of each stage, or the last
  /// where there are fewer. What ranks or replicas divide is put together: valid until the next
  /// call.
  std::vector<ParameterView> replica(std::size_t n);

 private:
  using Views = std::vector<ParameterView>;
  void unpack(const PackedBytes& bytes);
  void put_together(std::span<const Views> parts, Views& all);
  Views joined(std::span<const Views> of_stage, std::size_t at);

  bool differ_along_tp(std::size_t a, std::size_t b) const;

  const std::vector<MeshAxis>& devices_;
  const std::size_t parts_;   // ranks that divide a replica of a stage
  const std::size_t groups_;  // of replicas, each of which has all parts of what they divide
  std::vector<std::vector<Views>> stages_;             // by stage, then rank
  std::vector<std::unique_ptr<AlignedFloats>> whole_;  // arrays that were put together
  std::vector<std::unique_ptr<AlignedFloats>> copies_;
};

}  // namespace pipewright::exec::cpu
