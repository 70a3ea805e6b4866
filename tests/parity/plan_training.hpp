// A plan's training on the repository's own text.
#pragma once

#include <memory>

#include "core/model/recompute.hpp"
#include "core/plan/plan.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"

namespace pipewright::tests {

/// The plan outlives it.
struct PlanTraining {
  std::unique_ptr<exec::DataSource> data;
  exec::cpu::Training training;

  explicit PlanTraining(const Plan& plan, exec::Numerics numerics = exec::Numerics::Fast) {
    const int micro_batches = plan.replicas() * plan.micro_batches;
    data = exec::make_data(
        plan.model, {.samples = plan.micro_batch_size, .micro_batches = micro_batches, .seed = 7},
        PIPEWRIGHT_SOURCE_DIR "/LICENSE");
    training.model = &plan.model;
    training.stages = plan.stages;
    training.micro_batch_size = plan.micro_batch_size;
    training.micro_batches = micro_batches;
    training.optimizer = exec::optimizer_spec(plan.training.optimizer, 1e-3);
    training.options.recompute = recompute_of(plan.model, plan.training.recompute);
    training.options.numerics = numerics;
    training.data = data.get();
  }
};

}  // namespace pipewright::tests
