// Which collectives of a run over NCCL go by way of the hosts, with no call of NCCL: in exact
// numerics all of them, whose sums are chains that ranks go on with in turns, or no floats; and
// those of stages that replicas share out (ZeRO) in more than one array
// (exec/devices/cuda/parameters.hpp). Plain data, a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/plan.hpp"
#include "core/program/program.hpp"
#include "exec/base/numerics.hpp"

namespace pipewright::exec::nccl {

struct ByHosts {
  bool all = false;
  bool tied = false;  // gradients of tables, of which replicas that divide them have parts
  std::vector<std::uint8_t> stages = {};  // of REDUCE_GRADs and UNSHARDs; may be empty: none

  bool has(const Collective& collective) const {
    const auto stage = static_cast<std::size_t>(collective.stage.value);
    return all || (tied && collective.kind == ActionKind::ReduceTied) ||
           (has_stage(collective.kind) && stage < stages.size() && stages[stage] != 0);
  }
};

ByHosts by_hosts(const Program& program, const Model& model, const std::vector<StagePlan>& stages,
                 Numerics numerics);

}  // namespace pipewright::exec::nccl
