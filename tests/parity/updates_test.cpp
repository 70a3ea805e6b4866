// Weight versions, replicas and pairs for real: on the paced device the times are the simulator's,
// on the CPU the numbers are those of a serial run, or of a replay written out by hand where the
// order is asynchronous.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "core/base/error.hpp"
#include "core/order/problems.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/cpu/verify.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/local/transport.hpp"
#include "sim/engine.hpp"
#include "tests/parity/training_setting.hpp"
#include "tests/parity/update_cases.hpp"

namespace pipewright::tests {
namespace updates_test {

using exec::RunResult;
using exec::cpu::run_on_cpu;
using exec::cpu::Training;
using exec::local::ClockKind;

Program program_of(const Order& order, const char* policy = "torch") {
  return lower(order, comm_policy_preset(policy), {.optimizer = true});
}

void expect_simulated_times(const Order& order, const char* policy) {
  const Program program = program_of(order, policy);
  const CostTable costs = costs_of(program, 1000);
  const sim::Result predicted = sim::simulate(program, costs);
  const RunResult run = exec::paced::run_paced(program, costs, ClockKind::Virtual, {.steps = 2});
  ASSERT_TRUE(predicted.finished) << describe(program, sim::check(program, costs));
  ASSERT_TRUE(run.finished());
  EXPECT_EQ(run.timeline.start, predicted.timeline.start);
  EXPECT_EQ(run.timeline.end, predicted.timeline.end);
}

class Updates : public testing::TestWithParam<UpdateCase> {};

TEST_P(Updates, TheOrderIsWhole) { EXPECT_THAT(problems_of(GetParam().order), testing::IsEmpty()); }

TEST_P(Updates, PacedTimesAreTheSimulators) {
  for (const char* policy : {"ideal", "torch"}) {
    SCOPED_TRACE(policy);
    expect_simulated_times(GetParam().order, policy);
  }
}

TEST_P(Updates, FinishesOnTheWallClock) {
  const Program program = program_of(GetParam().order);
  const RunResult run =
      exec::paced::run_paced(program, costs_of(program, 2000), ClockKind::Wall, {.steps = 3});
  EXPECT_TRUE(run.finished());
}

TEST_P(Updates, ReplicasStayEqualAndTheLossFalls) {
  const Program program = program_of(GetParam().order);
  Setting setting(program);
  setting.training.verified_steps = program.asynchronous ? 0 : 2;
  const auto run = run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 20});
  ASSERT_TRUE(run.finished());
  EXPECT_LT(*run.steps.back().loss, *run.steps.front().loss);
  if (program.asynchronous) return;
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
}

INSTANTIATE_TEST_SUITE_P(Orders, Updates, testing::ValuesIn(update_cases()),
                         [](const auto& one) { return one.param.name; });

TEST(UpdatesOfManyRanks, PacedTimesAreTheSimulators) {
  for (const int p : {8, 16, 32}) {
    expect_simulated_times(test::pipedream_order(p, 2 * p), "torch");
    expect_simulated_times(test::bidirectional_order(p, 2 * p), "ideal");
  }
}

// --- What the weights are ---

/// The weights of every rank after each step, by name.
struct Watched {
  using Weights = std::map<std::string, std::vector<float>>;
  RunResult result;
  std::vector<std::vector<Weights>> steps;  // by step, rank
};

Watched watch(const Program& program, const Training& training, int steps) {
  Watched watched;
  const CostTable costs = costs_of(program, 1000);
  exec::local::LocalTransport transport(program, exec::local::real_messages(program, costs));
  std::vector<const exec::cpu::Device*> devices(static_cast<std::size_t>(program.ranks()));
  const exec::DeviceFactory make = [&](RankId rank, exec::Clock&) {
    auto device = std::make_unique<exec::cpu::Device>(program, training, rank, &transport);
    devices[static_cast<std::size_t>(rank.value)] = device.get();
    return device;
  };
  exec::RunOptions options{.steps = steps};
  options.on_step = [&](int, const exec::StepResult&) {
    auto& ranks = watched.steps.emplace_back();
    for (const auto* device : devices) {
      auto& weights = ranks.emplace_back();
      for (const auto& view : exec::parameters_of(device->stages()))
        weights[view.name].assign(view.value.begin(), view.value.end());
    }
  };
  watched.result = exec::run(program, costs, transport, make, options);
  return watched;
}

using Matrix = std::vector<double>;  // row major

double distance(const Matrix& expected, const std::vector<float>& found) {
  double apart = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    apart += (expected[i] - found[i]) * (expected[i] - found[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(apart / norm);
}

TEST(Replicas, AreEqualBitForBitAfterEveryStep) {
  for (const UpdateCase& one : update_cases()) {
    if (!one.order.placement.looks_at_micro_batch()) continue;
    SCOPED_TRACE(one.name);
    const Program program = program_of(one.order);
    const Setting setting(program);
    const Watched run = watch(program, setting.training, 4);
    ASSERT_TRUE(run.result.finished());
    int shared = 0;
    for (const auto& ranks : run.steps) {
      Watched::Weights known;
      for (const auto& weights : ranks) {
        for (const auto& [name, values] : weights) {
          const auto [at, is_new] = known.emplace(name, values);
          if (is_new) continue;
          ++shared;
          EXPECT_EQ(at->second, values) << name;
        }
      }
    }
    EXPECT_GT(shared, 0);
  }
}

TEST(Replicas, AnAsynchronousUpdateAveragesOverTheMicroBatchesOfAll) {
  // An update without gradients changes nothing, so all four micro-batches see the first weights,
  // and the second update is the one that a serial step makes.
  const Program program = program_of(
      read_order_csv("0REDUCE_GRAD,OPT,0F0@1,0F2@0,0B0@1,0F3@1,0B2@0,0B3@1,0REDUCE_GRAD,OPT\n"
                     "0F1@0,0REDUCE_GRAD,OPT,0B1@0,0REDUCE_GRAD,OPT\n",
                     "unequal.csv"));
  ASSERT_TRUE(program.asynchronous);
  const Setting setting(program);
  const Watched run = watch(program, setting.training, 1);
  ASSERT_TRUE(run.result.finished());
  exec::SerialRun serial(setting.model, {.micro_batch_size = kMicroBatchSize,
                                         .micro_batches = 4,
                                         .seed = 7,
                                         .optimizer = setting.training.optimizer});
  serial.step(*setting.data, 0);
  for (const auto& view : serial.stage().parameters()) {
    const Matrix expected(view.value.begin(), view.value.end());
    EXPECT_LE(distance(expected, run.steps[0][1].at(view.name)), 1e-5) << view.name;
  }
}

Layer plain_linear(int in, int out) {
  Layer layer;
  layer.kind = LayerKind::Linear;
  layer.name = std::to_string(in);
  layer.in = in;
  layer.out = out;
  layer.bias = false;
  return layer;
}

/// a[n][k] · b[k][m]; `at`, `bt`: the array is the transpose of what is meant.
Matrix product(const Matrix& a, bool at, const Matrix& b, bool bt, int n, int k, int m) {
  Matrix c(static_cast<std::size_t>(n) * static_cast<std::size_t>(m), 0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      for (int x = 0; x < k; ++x) {
        c[static_cast<std::size_t>(i * m + j)] +=
            a[static_cast<std::size_t>(at ? x * n + i : i * k + x)] *
            b[static_cast<std::size_t>(bt ? j * k + x : x * m + j)];
      }
    }
  }
  return c;
}

Matrix updated(Matrix weights, const Matrix& gradient, double rate) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * gradient[i];
  return weights;
}

constexpr std::array<int, 4> kWidths = {6, 5, 7, 4};
constexpr int kReplayedStages = 3, kUpdates = 7;

/// PipeDream's first updates of three linear stages with every version written down: stage s uses
/// for micro-batch m the weights after m - (2 - s) updates. Starts from and returns the weights.
std::vector<Matrix> replayed(const Setting& setting, const std::vector<Matrix>& start,
                             double rate) {
  std::vector<std::vector<Matrix>> versions;  // by stage, then version
  for (const Matrix& weights : start) versions.push_back({weights});
  for (int m = 0; m < kUpdates; ++m) {
    const exec::MicroBatch batch = setting.data->micro_batch(0, m);
    const auto used = [&](std::size_t s) -> const Matrix& {
      const int version = std::max(0, m - (kReplayedStages - 1 - static_cast<int>(s)));
      return versions[s][static_cast<std::size_t>(version)];
    };
    std::vector<Matrix> inputs{Matrix(batch.inputs.begin(), batch.inputs.end())};  // by stage
    const int rows = static_cast<int>(batch.inputs.size()) / kWidths[0];
    for (std::size_t s = 0; s < kReplayedStages; ++s)
      inputs.push_back(product(inputs[s], false, used(s), false, rows, kWidths[s], kWidths[s + 1]));
    Matrix d = inputs.back();
    for (std::size_t i = 0; i < d.size(); ++i)
      d[i] = 2 * (d[i] - batch.targets[i]) / static_cast<double>(d.size());
    for (std::size_t s = kReplayedStages; s-- > 0;) {
      const Matrix gradient = product(inputs[s], true, d, false, kWidths[s], rows, kWidths[s + 1]);
      d = product(d, false, used(s), true, rows, kWidths[s + 1], kWidths[s]);
      versions[s].push_back(updated(versions[s].back(), gradient, rate));
    }
  }
  std::vector<Matrix> last;
  for (const auto& of_stage : versions) last.push_back(of_stage.back());
  return last;
}

TEST(WeightVersions, PipeDreamsUpdatesAreThoseOfAReplayByHand) {
  const Program program = program_of(test::pipedream_order(kReplayedStages, kUpdates));
  Model model;
  model.name = "three";
  model.loss = LossKind::Mse;
  for (std::size_t s = 0; s < kReplayedStages; ++s)
    model.layers.push_back(plain_linear(kWidths[s], kWidths[s + 1]));
  Setting setting(program, model);
  setting.training.optimizer = exec::optimizer_spec("sgd", 0.5);
  const exec::SerialRun start(setting.model, {.micro_batch_size = kMicroBatchSize,
                                              .micro_batches = kUpdates,
                                              .seed = 7,
                                              .optimizer = setting.training.optimizer});
  const auto views = start.stage().parameters();
  std::vector<Matrix> weights;
  for (const auto& view : views) weights.emplace_back(view.value.begin(), view.value.end());
  ASSERT_EQ(weights.size(), 3U);
  const std::vector<Matrix> expected = replayed(setting, weights, 0.5);
  const Watched run = watch(program, setting.training, 1);
  ASSERT_TRUE(run.result.finished());
  for (std::size_t s = 0; s < kReplayedStages; ++s) {
    EXPECT_LE(distance(expected[s], run.steps[0][s].at(views[s].name)), 1e-6) << s;
    // Far enough from the start for a wrong version to show.
    EXPECT_GT(distance(expected[s], {views[s].value.begin(), views[s].value.end()}), 1e-2) << s;
  }
}

std::vector<float> weights_in_use(const exec::cpu::Device& device) {
  std::vector<float> all;
  for (const auto& view : exec::parameters_of(device.stages()))
    all.insert(all.end(), view.value.begin(), view.value.end());
  return all;
}

TEST(WeightVersions, ForwardAndBackwardOfAMicroBatchSeeTheSameWeights) {
  // One rank that runs ahead by two, by hand, so that the weights can be looked at between.
  const Order order = read_order_csv(
      "0F0@0,0F1@0,0F2@0,0I0@0,0W0,OPT,0F3@1,0B1@0,OPT,0F4@1,0I2@0,OPT,0W2@0,0B3@1,OPT,0B4@1,OPT\n",
      "ahead.csv");
  ASSERT_THAT(problems_of(order), testing::IsEmpty());
  const Program program = program_of(order);
  const Setting setting(program);
  exec::cpu::Device device(program, setting.training, RankId(0));
  device.begin_step(0);
  std::map<int, std::vector<float>> seen;  // by version
  std::vector<int> live;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    device.compute(id);
    live.push_back(device.stages()[0]->live_versions());
    const Instruction& in = program.code[id];
    if (!is_compute(in.kind)) continue;
    const int version = in.micro_batch < 3 ? 0 : 1;
    // The last use of a version lets it go; the stage then stands at the newest weights.
    const bool is_last = program.text(id) == "0W2@0" || program.text(id) == "0B4@1";
    if (is_last) continue;
    const auto [at, is_new] = seen.emplace(version, weights_in_use(device));
    if (!is_new) {
      EXPECT_EQ(at->second, weights_in_use(device)) << program.text(id);
    }
  }
  device.end_step();
  EXPECT_NE(seen.at(0), seen.at(1));
  EXPECT_NE(seen.at(1), weights_in_use(device));
  //                         F0 F1 F2 I0 W0  O F3 B1  O F4 I2  O W2 B3  O B4  O
  EXPECT_EQ(live, (std::vector{1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 2, 2, 2, 1, 1}));
}

TEST(WeightVersions, NoMoreLiveThanThePapersSay) {
  for (const int p : {1, 2, 4}) {
    const Program stashing = program_of(test::pipedream_order(p, 12));
    const Setting one(stashing);
    const auto run = run_on_cpu(stashing, costs_of(stashing, 1000), one.training);
    ASSERT_EQ(run.peak_weight_versions.size(), static_cast<std::size_t>(p));
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(run.peak_weight_versions[static_cast<std::size_t>(r)], p - r);  // p-1-r ahead, + 1
    }
    const Program buffered = program_of(test::double_buffered_order(p, 4, 4));
    const Setting two(buffered);
    for (const int versions :
         run_on_cpu(buffered, costs_of(buffered, 1000), two.training).peak_weight_versions) {
      EXPECT_EQ(versions, 2);
    }
  }
}

// --- Pairs ---

TEST(Pairs, DualPipeVTrainsLikeTheSerialRun) {
  if (!std::filesystem::exists(dualpipev_file())) GTEST_SKIP() << "no " << dualpipev_file();
  const Order order = read_order_csv(golden::text_of(dualpipev_file()), "dualpipev.csv");
  const Program program = program_of(order);
  Setting setting(program);
  setting.training.verified_steps = 2;
  const auto run = run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 3});
  ASSERT_TRUE(run.finished()) << describe(program, run.stuck);
  EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
  expect_simulated_times(order, "torch");
}

// --- What cannot be trained ---

TEST(Refused, WhatWouldLetReplicasDriftApart) {
  const auto refuse = [](const char* csv) {
    const Program program = lower(read_order_csv(csv, "o"), comm_policy_preset("torch"));
    const Setting setting(program);
    try {
      run_on_cpu(program, costs_of(program, 1), setting.training);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using testing::HasSubstr;
  EXPECT_THAT(refuse("0F0,0B0,OPT\n0F1,0B1,OPT\n"), HasSubstr("put a 0REDUCE_GRAD before the OPT"));
  EXPECT_THAT(refuse("0F0,0B0,0REDUCE_GRAD,OPT\n0F1,0B1,0REDUCE_GRAD\n"),
              HasSubstr("ranks 0 and 1 hold replicas of stage 0"));
  EXPECT_THAT(refuse("0F0@0,0REDUCE_GRAD,0B0@0,0REDUCE_GRAD,OPT\n"
                     "0F1@0,0REDUCE_GRAD,0B1@0,0REDUCE_GRAD,OPT\n"),
              HasSubstr("between its REDUCE_GRAD and the OPT"));
  EXPECT_EQ(refuse("0F0,0B0,0REDUCE_GRAD,OPT\n0F1,0B1,0REDUCE_GRAD,OPT\n"), "");
}

TEST(Refused, VerifyingAnAsynchronousOrder) {
  const Program program = program_of(test::pipedream_order(2, 4));
  Setting setting(program);
  setting.training.verified_steps = 1;
  EXPECT_THROW(run_on_cpu(program, costs_of(program, 1), setting.training), InputError);
}

}  // namespace updates_test
}  // namespace pipewright::tests
