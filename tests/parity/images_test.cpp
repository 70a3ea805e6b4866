// A residual network with batch norm on real threads: any number of stages gives the serial run.
#include <gtest/gtest.h>

#include "tests/parity/training_setting.hpp"

namespace pipewright::tests {
namespace images_test {

struct ImageCase {
  const char* schedule;
  int ranks, chunks;
};

class Images : public testing::TestWithParam<ImageCase> {};

TEST_P(Images, TrainToTheSerialRunsBits) {
  const ImageCase given = GetParam();
  const Program program = program_of({given.schedule, given.ranks, 4, given.chunks, "torch"});
  Setting setting(program, model_preset("resnet-tiny"));
  setting.training.verified_steps = 3;
  setting.training.options.numerics = exec::Numerics::Exact;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 3});
  ASSERT_TRUE(run.finished());
  ASSERT_TRUE(run.verify.has_value());
  // Running statistics are among what is compared.
  EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
  EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Images,
                         testing::Values(ImageCase{"1f1b", 1, 1}, ImageCase{"1f1b", 2, 1},
                                         ImageCase{"1f1b", 4, 1}, ImageCase{"gpipe", 4, 1},
                                         ImageCase{"zb-h1", 4, 1}, ImageCase{"interleaved", 2, 2},
                                         ImageCase{"chimera", 4, 1}),
                         [](const auto& one) {
                           std::string name = one.param.schedule;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name + "_pp" + std::to_string(one.param.ranks);
                         });

}  // namespace images_test
}  // namespace pipewright::tests
