// A small model, its data and how it is trained, for the tests on the CPU device.
#pragma once

#include <memory>

#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "tests/parity/run_case.hpp"

namespace pipewright::tests {

inline constexpr int kMicroBatchSize = 3;

/// Not to be moved: the training points into it.
struct Setting {
  Model model;
  std::unique_ptr<exec::DataSource> data;
  exec::cpu::Training training;

  explicit Setting(const Program& program, const Model& what = small_model()) : model(what) {
    data = exec::make_data(
        model, {.samples = kMicroBatchSize, .micro_batches = program.micro_batches, .seed = 7},
        PIPEWRIGHT_SOURCE_DIR "/LICENSE");
    training.model = &model;
    training.stages = equal_stages(model, program);
    training.micro_batch_size = kMicroBatchSize;
    training.micro_batches = program.micro_batches;
    training.seed = 7;
    training.data = data.get();
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
};

}  // namespace pipewright::tests
