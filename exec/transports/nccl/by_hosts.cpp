#include "exec/transports/nccl/by_hosts.hpp"

#include "core/model/find_layer.hpp"
#include "exec/transports/nccl/communicators.hpp"

namespace pipewright::exec::nccl {

/// Experts that differ among replicas are in an array of their own.
ByHosts by_hosts(const Program& program, const Model& model, const std::vector<StagePlan>& stages,
                 Numerics numerics) {
  ByHosts hosts{numerics == Numerics::Exact, program.sharding.divides_gradients(),
                std::vector<std::uint8_t>(stages.size(), 0)};
  for (const Collective& collective : program.collectives) {
    if (collective.kind != ActionKind::ReduceGrad || !collective.sharded) continue;
    const auto number = static_cast<std::size_t>(collective.stage.value);
    if (!replicas_hold_other_experts(program, collective)) continue;
    Model of_stage;
    of_stage.layers.assign(model.layers.begin() + stages[number].first_layer,
                           model.layers.begin() + stages[number].end_layer);
    const auto found = find_layer(
        of_stage, [](const Layer& layer) { return layer.kind == LayerKind::MixtureOfExperts; });
    hosts.stages[number] |= found ? 1 : 0;
  }
  return hosts;
}

}  // namespace pipewright::exec::nccl
