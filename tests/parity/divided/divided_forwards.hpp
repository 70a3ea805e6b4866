// Evaluations and predictions by ranks that divide layers and sequences, for any device.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/parity/divided/divided_program.hpp"
#include "tests/parity/forward_run.hpp"

namespace pipewright::tests {

inline constexpr int kForwardSteps = 2;

/// A text whose last step is not full: its last micro-batch has one sample of three, or none.
inline std::string forward_text(const Model& model, int micro_batches) {
  const int samples = kMicroBatchSize * (micro_batches * kForwardSteps - 1) - 2;
  std::string text(static_cast<std::size_t>(model.sequence) * samples + 1, 'a');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 23);
  const std::string file = testing::TempDir() + "divided_forwards_" +
                           std::to_string(model.sequence) + "_" + std::to_string(samples);
  write_file(file, text);
  return file;
}

/// Not to be moved, as Setting.
struct ForwardSetting : DividedSetting {
  ForwardSetting(const Program& program, const Model& what, exec::Numerics numerics,
                 const Layout& layout, exec::RunMode mode)
      : DividedSetting(program, what, numerics, layout) {
    training.mode = mode;
    const exec::DataShape shape{.samples = kMicroBatchSize,
                                .micro_batches = training.micro_batches,
                                .seed = 7,
                                .shuffled = false,
                                .with_answers = mode == exec::RunMode::Evaluate};
    set = exec::make_data_set(what, shape, {forward_text(what, training.micro_batches), "", ""},
                              kForwardSteps);
    training.data = set.source.get();
  }

  exec::DataSet set;
};

}  // namespace pipewright::tests
