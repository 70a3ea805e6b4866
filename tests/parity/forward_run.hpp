// Evaluations and predictions, and the serial forward that they have to agree with.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/stage.hpp"
#include "exec/evaluation/data.hpp"
#include "exec/evaluation/evaluation.hpp"

namespace pipewright::tests {

struct ForwardNumbers {
  exec::EvaluationReport report;
  std::vector<float> outputs;
};

inline exec::OutputSink into(ForwardNumbers& numbers) {
  return [&](std::span<const float> outputs) {
    numbers.outputs.insert(numbers.outputs.end(), outputs.begin(), outputs.end());
  };
}

/// All layers in one stage, micro-batches one after another.
inline ForwardNumbers serial_forwards(const exec::cpu::Training& training, int steps) {
  ForwardNumbers numbers;
  const Model& model = *training.model;
  exec::cpu::StageOptions options;
  options.numerics = training.options.numerics;
  exec::cpu::Stage stage(model, 0, static_cast<int>(model.layers.size()), training.micro_batch_size,
                         training.micro_batches, training.seed, {}, options);
  stage.forward_only(training.mode);
  exec::Evaluation evaluation(model, training.mode, training.micro_batches, into(numbers));
  for (int step = 0; step < steps; ++step) {
    for (int m = 0; m < training.micro_batches; ++m) {
      stage.set_batch(m, training.data->micro_batch(step, m));
      stage.forward(m, {});
      evaluation.put(m, stage.take_outcome(m));
    }
    evaluation.end_step();
  }
  numbers.report = evaluation.report();
  return numbers;
}

inline void expect_equal(const ForwardNumbers& found, const ForwardNumbers& expected) {
  EXPECT_EQ(found.report.samples, expected.report.samples);
  EXPECT_EQ(found.report.rows, expected.report.rows);
  EXPECT_EQ(found.report.not_finite_rows, expected.report.not_finite_rows);
  EXPECT_EQ(found.report.loss, expected.report.loss);
  EXPECT_EQ(found.report.accuracy, expected.report.accuracy);
  EXPECT_EQ(found.report.perplexity, expected.report.perplexity);
  EXPECT_EQ(found.outputs, expected.outputs);
}

}  // namespace pipewright::tests
