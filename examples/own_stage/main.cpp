// A layer that Pipewright does not have, in a model that a pipeline of two ranks trains: what the
// layer computes and its two gradients, who makes it, the model around it, and a run that is
// compared with a serial one bit for bit.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/model/model.hpp"
#include "core/program/lower.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/layers/own_layer.hpp"
#include "planner/schedules/registry.hpp"

using namespace pipewright;

namespace {

/// Swish with a slope for each column that is learned: y = x · s(b x), where s is the logistic
/// function. F keeps s(b x), so that I and W need no exponentials.
class LearnedSwish final : public exec::OwnLayer {
 public:
  explicit LearnedSwish(const exec::OwnLayerSite& site)
      : width_(static_cast<std::size_t>(site.in)),
        slope_(site.constant("slope", width_, std::stof(site.setting("slope", "1")))) {}

  int kept_width() const override { return static_cast<int>(width_); }

  void forward(const exec::OwnLayerInput& input, std::span<float> y) override {
    for (std::size_t i = 0; i < y.size(); ++i) {
      input.kept[i] = 1 / (1 + std::exp(-slope_.value[i % width_] * input.x[i]));
      y[i] = input.x[i] * input.kept[i];
    }
  }

  // dy/dx = s + b x s (1 - s)
  void backward_input(const exec::OwnLayerInput& input, std::span<const float> dy,
                      std::span<float> dx) override {
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const float s = input.kept[i];
      dx[i] = dy[i] * (s + slope_.value[i % width_] * input.x[i] * s * (1 - s));
    }
  }

  // dy/db = x² s (1 - s)
  void backward_weight(const exec::OwnLayerInput& input, std::span<const float> dy) override {
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const float s = input.kept[i];
      slope_.gradient[i % width_] += dy[i] * input.x[i] * input.x[i] * s * (1 - s);
    }
  }

  std::vector<exec::Parameter*> parameters() override { return {&slope_}; }

 private:
  std::size_t width_;
  exec::Parameter slope_;
};

/// What model.json would say with {"kind": "custom", "type": "learned_swish", "weights": 32}.
Layer swish(int width) {
  Layer layer;
  layer.name = "swish";
  layer.kind = LayerKind::Custom;
  layer.in = layer.out = width;
  layer.custom = {.type = "learned_swish",
                  .settings = {{"slope", "1.5"}},
                  .weights = width,
                  .operations = 8.0 * width};
  return layer;
}

Layer linear(const char* name, int in, int out) {
  Layer layer;
  layer.name = name;
  layer.in = in;
  layer.out = out;
  return layer;
}

}  // namespace

int main() {
  constexpr int kRanks = 2, kMicroBatches = 8, kMicroBatchSize = 16, kSteps = 200;

  exec::LayerFactory factory;
  factory.makers["learned_swish"] = [](const exec::OwnLayerSite& site) {
    return std::make_unique<LearnedSwish>(site);
  };

  Model model;
  model.name = "own";
  model.loss = LossKind::Mse;
  model.layers = {linear("up", 16, 32), swish(32), linear("middle", 32, 32), swish(32),
                  linear("down", 32, 8)};

  const Order order = planner::make_order(
      "zb-h1", {.ranks = kRanks, .micro_batches = kMicroBatches, .chunks = 1, .parameters = {}});
  const Program program = lower(order, comm_policy_preset("torch"), {.optimizer = true});

  const auto data = exec::make_data(
      model, {.samples = kMicroBatchSize, .micro_batches = kMicroBatches, .seed = 1}, "");
  exec::cpu::Training training;
  training.model = &model;
  training.stages = {{0, 2, RankId(0)}, {2, 5, RankId(1)}};  // layers 0 and 1; 2, 3 and 4
  training.micro_batch_size = kMicroBatchSize;
  training.micro_batches = kMicroBatches;
  training.optimizer = exec::optimizer_spec("adamw", 3e-3);
  training.options.numerics = exec::Numerics::Exact;
  training.options.layers = &factory;
  training.data = data.get();
  training.verified_steps = 3;

  const CostTable costs = CostTable::uniform(program.stages, {}, Nanoseconds(0));
  const auto result = exec::cpu::run_on_cpu(program, costs, training, {.steps = kSteps});
  if (!result.finished() || !result.verify) return 1;

  const double first = *result.steps.front().loss, last = *result.steps.back().loss;
  const bool same = result.verify->gradients.bitwise && result.verify->parameters.bitwise;
  std::printf("loss %.4f, after %d steps %.4f\n", first, kSteps, last);
  std::printf("the first 3 steps %s a serial run bit for bit\n", same ? "equal" : "DIFFER from");
  return same && last < first / 2 ? 0 : 1;
}
