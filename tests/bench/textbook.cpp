// The textbook experiment: a model in two stages on two cores, the batch cut into 1, 2, 4 and 8
// micro-batches, GPipe's order. Speed-up over one core that computes the same micro-batches, beside
// the ideal of two equal stages, 2M / (M + 1): each core computes M forwards and backwards of half
// the model, and waits once for the other one in each direction.
// docs/evidence/benchmarks/textbook.md has a result.
//   textbook [gpt|preset|model.json, default gpt] [rounds, default 5] [samples of a batch, default
//   16]
//
// One core and two take turns in each round, and each is given the median of all its steps. On the
// virtual clock the figure is that of two cores which nobody else uses.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "core/base/error.hpp"
#include "core/costs/distribution.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/layers/footprint.hpp"
#include "tests/bench/study_models.hpp"

namespace pipewright::bench {
namespace {

using exec::local::ClockKind;

constexpr int kStepsOfARound = 4;  // behind one that warms up

Model model_from(const std::string& what) {
  if (what == "gpt") return gpt(8);
  if (!what.ends_with(".json")) return model_preset(what);
  const Json document = parse_json(read_text(what), what);
  return read_model(JsonCursor(document, what));
}

/// Where the first stage ends, so that both have about the same operations.
int middle_of(const Model& model) {
  const auto work_of = [&](std::size_t l) {
    const exec::LayerFootprint size = exec::footprint(model.layers[l], model, 1);
    return size.forward_flops + size.input_gradient_flops + size.weight_gradient_flops;
  };
  double all = 0;
  for (std::size_t l = 0; l < model.layers.size(); ++l) all += work_of(l);
  double before = 0;
  std::size_t l = 0;
  while (l + 1 < model.layers.size() && before + work_of(l) / 2 < all / 2) before += work_of(l++);
  return std::max(1, static_cast<int>(l));
}

/// Steps of the model on so many ranks (1 or 2), appended to `step_ns`.
void run_steps(const Model& model, int ranks, int micro_batches, int samples, ClockKind clock,
               std::vector<std::int64_t>& step_ns) {
  const Program program = training_program("gpipe", ranks, micro_batches, 1);
  const int micro_batch_size = samples / micro_batches;
  const auto data = exec::make_data(
      model, {.samples = micro_batch_size, .micro_batches = micro_batches, .seed = 1},
      PIPEWRIGHT_SOURCE_DIR "/LICENSE");
  exec::cpu::Training training;
  training.model = &model;
  training.micro_batch_size = micro_batch_size;
  training.micro_batches = micro_batches;
  training.data = data.get();
  training.clock = clock;
  const auto layers = static_cast<int>(model.layers.size());
  const int middle = ranks == 1 ? layers : middle_of(model);
  training.stages.push_back({.first_layer = 0, .end_layer = middle, .rank = RankId(0)});
  if (ranks == 2)
    training.stages.push_back({.first_layer = middle, .end_layer = layers, .rank = RankId(1)});
  const auto run = exec::cpu::run_on_cpu(program, CostTable::uniform(program.stages, {}), training,
                                         {.steps = kStepsOfARound + 1, .median_timeline = false});
  for (std::size_t s = 1; s < run.steps.size(); ++s) step_ns.push_back(run.steps[s].step_ns);
}

double median_ms(const std::vector<std::int64_t>& step_ns) {
  return static_cast<double>(distribution_of(step_ns).median().value) / 1e6;
}

void print_row(const Model& model, int micro_batches, int samples, ClockKind clock, int rounds) {
  std::vector<std::int64_t> one, two;
  for (int round = 0; round < rounds; ++round) {
    run_steps(model, 1, micro_batches, samples, clock, one);
    run_steps(model, 2, micro_batches, samples, clock, two);
  }
  const double speed_up = median_ms(one) / median_ms(two);
  const double ideal = 2.0 * micro_batches / (micro_batches + 1);
  std::printf("%-8s %3d %8d %10.2f %10.2f %9.3f %7.3f %8.1f\n",
              clock == ClockKind::Wall ? "wall" : "virtual", micro_batches, samples / micro_batches,
              median_ms(one), median_ms(two), speed_up, ideal, 100 * speed_up / ideal);
  std::fflush(stdout);
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  using namespace pipewright;
  using namespace pipewright::bench;
  try {
    const Model model = model_from(argc > 1 ? argv[1] : "gpt");
    const int rounds = std::max(1, argc > 2 ? std::atoi(argv[2]) : 5);
    const int samples = std::max(8, argc > 3 ? std::atoi(argv[3]) : 16);
    std::printf(
        "%s, batch of %d, cut behind layer %d of %zu, %u cores; ms, share of the ideal in %%\n",
        model.name.c_str(), samples, middle_of(model), model.layers.size(),
        std::thread::hardware_concurrency());
    std::printf("%-8s %3s %8s %10s %10s %9s %7s %8s\n", "clock", "M", "samples", "one core",
                "two cores", "speed-up", "ideal", "share");
    for (const auto clock : {ClockKind::Wall, ClockKind::Virtual}) {
      for (const int micro_batches : {1, 2, 4, 8})
        print_row(model, micro_batches, samples, clock, rounds);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "textbook: %s\n", error.what());
    return 2;
  }
  return 0;
}
