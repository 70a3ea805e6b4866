// What a plan says that each rank needs, and what the CPU's ranks held at their worst moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "core/model/transformer.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "planner/memory/memory.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/plans/run_of_plan.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/plan_training.hpp"

namespace pipewright::tests {
namespace memory_peaks_test {

/// Of the two, relative to what was measured; what docs/metrics.md promises.
constexpr double kMostApart = 0.05;

struct PeakCase {
  const char *model, *schedule;
  int ranks = 4, micro_batches = 8, chunks = 1, replicas = 1, micro_batch_size = 8;
  RecomputeSpec::Kind recompute = RecomputeSpec::Kind::None;
  const char* optimizer = "adamw";
  bool sharded = false;
  int tensor = 1;
  int experts = 1;    // ranks that divide them: replicas, or all where they have whole ones
  int zero = 1;       // where it is sharded
  bool rows = false;  // sequence parallelism
  int context = 1;    // ranks that divide the sequences
  bool whole_experts = false;
  bool ring = false;  // keys and values go round these
};

std::string name_of(const PeakCase& c) {
  std::string name = std::string(c.model) + "_" + c.schedule + "_" + std::to_string(c.ranks);
  if (c.chunks > 1) name += "x" + std::to_string(c.chunks);
  if (c.tensor > 1) name += "_tp" + std::to_string(c.tensor);
  if (c.micro_batch_size == 2) name += "_of_2";
  if (c.rows) name += "_sp";
  if (c.context > 1) name += "_cp" + std::to_string(c.context);
  if (c.ring) name += "_p2p";
  if (c.experts > 1) name += "_ep" + std::to_string(c.experts);
  if (c.whole_experts) name += "_etp1";
  if (c.replicas > 1) name += c.sharded ? "_zero" + std::to_string(c.zero) : "_replicas";
  if (c.recompute == RecomputeSpec::Kind::Full) name += "_full";
  if (c.recompute == RecomputeSpec::Kind::Selective) name += "_selective";
  name += std::string("_") + c.optimizer;
  for (char& letter : name) letter = letter == '-' ? '_' : letter;
  return name;
}

/// Little weight and much activation, so that the activations decide.
Model model_named(const std::string& name) {
  if (name == "resnet-tiny") return model_preset("resnet-tiny");
  Model model;
  model.name = name;
  if (name != "mlp") {
    TransformerShape shape{
        .hidden = 32, .layers = 7, .heads = 4, .ffn = 128, .vocabulary = 256, .sequence = 32};
    if (name != "transformer") {
      shape.style = TransformerStyle::Llama;
      shape.ffn = 88;
      shape.kv_heads = 2;
    }
    if (name == "mixtral" || name == "capped" || name == "evenly") {  // evenly: rows come to all
      shape.ffn = 24;
      shape.choice = {.experts = 4, .top_k = name == "evenly" ? 4 : 2, .balance_loss = 0.01};
      if (name == "capped") shape.choice.capacity_factor = 1.25;
      shape.shared_ffn = 16;
    }
    if (name == "deepseek") {
      shape.kv_heads = 0;
      shape.latent = {.query_rank = 20, .key_value_rank = 12, .plain = 8, .rotary = 4, .value = 10};
    }
    model.layers = expand(shape);
    model.sequence = shape.sequence;
    return model;
  }
  for (int l = 0; l < 8; ++l) {
    Layer linear, relu;
    linear.in = linear.out = relu.in = relu.out = 32;
    relu.kind = LayerKind::Relu;
    model.layers.push_back(linear);
    model.layers.push_back(relu);
  }
  return model;
}

Plan plan_of(const PeakCase& c) {
  Plan plan;
  plan.model = model_named(c.model);
  plan.mesh = c.context > 1 ? Mesh::grid_of_parts(c.ranks, c.replicas, c.context, c.tensor)
                            : Mesh::grid_of_replicas(c.ranks, c.replicas, 1, c.tensor);
  plan.replicas_are_ranks = c.context > 1;
  plan.expert_parallel = c.experts;
  plan.expert_tensor_parallel = c.whole_experts ? 1 : 0;
  plan.sequence_parallel = c.rows;
  plan.ring = c.ring;
  plan.micro_batches = c.micro_batches;
  plan.micro_batch_size = c.micro_batch_size;
  plan.schedule.name = c.schedule;
  plan.schedule.chunks = c.chunks;
  plan.training.optimizer = c.optimizer;
  plan.training.recompute.kind = c.recompute;
  plan.sharding_stage = c.sharded ? c.zero : 0;
  plan.policy = comm_policy_preset("torch");
  const Order order = planner::make_order(c.schedule, {c.ranks, c.micro_batches, c.chunks, {}});
  const int layers = static_cast<int>(plan.model.layers.size());
  for (int s = 0; s < order.stages(); ++s) {
    plan.stages.push_back({s * layers / order.stages(), (s + 1) * layers / order.stages(),
                           order.placement.rank_of(StageId(s), MicroBatchId(0))});
  }
  plan.costs = CostTable::uniform(order.stages(), {});
  return plan;
}

std::vector<std::int64_t> measured(const Plan& plan, const Program& program,
                                   exec::Numerics numerics = exec::Numerics::Fast,
                                   exec::RunMode mode = exec::RunMode::Train) {
  PlanTraining on_text(plan, numerics);
  on_text.training.options.ranks.rows = plan.division().rows;
  on_text.training.options.ranks.fold = plan.division().fold;
  on_text.training.options.ranks.ring = plan.division().ring;
  on_text.training.mode = mode;
  return exec::cpu::run_on_cpu(program, plan.costs, on_text.training, {.steps = 2}).peak_bytes;
}

class MemoryPeaks : public testing::TestWithParam<PeakCase> {};

TEST_P(MemoryPeaks, AreWithinFivePercentOfWhatThePlanSays) {
  const Plan plan = plan_of(GetParam());
  const Program program = planner::program_of_run(plan);
  const auto said = planner::memory_by_rank(plan, program);
  const auto held = measured(plan, program);
  ASSERT_EQ(said.size(), held.size());
  double worst = 0;
  for (std::size_t r = 0; r < held.size(); ++r) {
    const auto of_plan = static_cast<double>(said[r].peak().value);
    const auto of_run = static_cast<double>(held[r]);
    const double apart = of_plan / of_run - 1;
    if (std::abs(apart) > std::abs(worst)) worst = apart;
    EXPECT_LE(std::abs(apart), kMostApart)
        << "rank " << r << ": the plan says " << of_plan << ", it held " << of_run
        << "; activations are " << said[r].activations.value;
    EXPECT_GE(said[r].activations.value, said[r].state.sum().value / 8) << "nothing to predict";
  }
  RecordProperty("worst_error_percent", std::to_string(100 * worst));
}

/// By rank, of a run that is not the plan's own training.
std::vector<RankFigures> predicted(Plan plan, const Program& program, exec::Numerics numerics,
                                   exec::RunMode mode) {
  plan.costs.memory =
      planner::memory_of(plan.model, plan.stages, plan.micro_batch_size, plan.training.optimizer,
                         recompute_of(plan.model, plan.training.recompute), plan.division());
  const int sharing = plan.replicas() * plan.division().context *
                      holders_in(planner::find_schedule(plan.schedule.name).layout);
  const planner::StateShards shards{plan.sharding_stage, plan.sharding_stage > 0 ? sharing : 1,
                                    sharing};
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const planner::StageState state =
        planner::state_of(plan.model, plan.stages[s], plan.training.optimizer, plan.division());
    planner::divide(plan.costs.memory[s], state, shards);
    planner::set_copies(plan.costs.memory[s], state, shards);
    plan.costs.memory[s] = planner::memory_of_run(plan, s, plan.costs.memory[s], numerics, mode);
  }
  return peaks_of(program, plan.costs);
}

void expect_close(const std::vector<RankFigures>& said, const std::vector<std::int64_t>& held) {
  ASSERT_EQ(said.size(), held.size());
  for (std::size_t r = 0; r < held.size(); ++r) {
    const double apart = static_cast<double>(said[r].peak_bytes) / static_cast<double>(held[r]) - 1;
    EXPECT_LE(std::abs(apart), kMostApart)
        << "rank " << r << ": predicted " << said[r].peak_bytes << ", it held " << held[r];
  }
}

TEST_P(MemoryPeaks, OfExactNumericsAreWithinFivePercent) {
  const Plan plan = plan_of(GetParam());
  const Program program = planner::program_of_run(plan, exec::Numerics::Exact);
  expect_close(predicted(plan, program, exec::Numerics::Exact, exec::RunMode::Train),
               measured(plan, program, exec::Numerics::Exact));
}

TEST_P(MemoryPeaks, OfForwardsAloneAreWithinFivePercent) {
  const Plan plan = plan_of(GetParam());
  for (const exec::RunMode mode : {exec::RunMode::Evaluate, exec::RunMode::Predict}) {
    for (const exec::Numerics numerics : {exec::Numerics::Fast, exec::Numerics::Exact}) {
      const Program program = planner::program_of_run(plan, numerics, mode);
      expect_close(predicted(plan, program, numerics, mode),
                   measured(plan, program, numerics, mode));
    }
  }
}

/// Untrained routers send most rows to some of the experts.
TEST(UnevenRows, ARankHoldsNoMoreThanIsSaidAtMost) {
  for (const char* model : {"mixtral", "capped", "evenly"}) {
    for (const int experts : {2, 4}) {
      SCOPED_TRACE(model + std::string(", ep ") + std::to_string(experts));
      const Plan plan = plan_of({.model = model,
                                 .schedule = "1f1b",
                                 .ranks = 2,
                                 .replicas = experts,
                                 .experts = experts});
      const Program program = planner::program_of_run(plan);
      const std::optional<Bytes> most = planner::most_with_uneven_rows(plan, program);
      if (model == std::string("evenly")) {
        EXPECT_FALSE(most) << "more than that cannot come";
        continue;
      }
      ASSERT_TRUE(most);
      const std::vector<std::int64_t> held = measured(plan, program);
      EXPECT_LE(*std::max_element(held.begin(), held.end()), most->value);
    }
  }
}

/// The same where these are devices along tp, too.
TEST(UnevenRows, ARankWithWholeExpertsHoldsNoMoreThanIsSaidAtMost) {
  for (const int experts : {2, 4}) {
    SCOPED_TRACE("ep " + std::to_string(experts));
    const Plan plan = plan_of({.model = "mixtral",
                               .schedule = "1f1b",
                               .ranks = 2,
                               .replicas = experts / 2,
                               .tensor = 2,
                               .experts = experts,
                               .rows = true,
                               .whole_experts = true});
    const Program program = planner::program_of_run(plan);
    const std::optional<Bytes> most = planner::most_with_uneven_rows(plan, program);
    ASSERT_TRUE(most);
    const std::vector<std::int64_t> held = measured(plan, program);
    EXPECT_LE(*std::max_element(held.begin(), held.end()), most->value);
  }
}

/// Two replicas that divide gradients, or weights too.
PeakCase divided(const char* schedule, int chunks, int zero) {
  return {.model = "llama",
          .schedule = schedule,
          .ranks = 2,
          .micro_batches = 4,
          .chunks = chunks,
          .replicas = 2,
          .sharded = true,
          .zero = zero};
}

/// Micro-batches so small that copies of gradients decide.
PeakCase copied(const char* model, const char* schedule, bool sharded = false,
                const char* optimizer = "adamw") {
  return {.model = model,
          .schedule = schedule,
          .ranks = 2,
          .micro_batches = 4,
          .replicas = 2,
          .micro_batch_size = 2,
          .optimizer = optimizer,
          .sharded = sharded};
}

/// The same of four that divide experts, to which rows come evenly.
PeakCase divided_with_experts(int zero) {
  return {.model = "evenly",
          .schedule = "1f1b",
          .ranks = 2,
          .replicas = 4,
          .sharded = true,
          .experts = 2,
          .zero = zero};
}

/// Whole experts on ranks along tp, too, to which rows come evenly.
PeakCase folded(const char* schedule, int replicas, int experts, int context = 1) {
  return {.model = "evenly",
          .schedule = schedule,
          .ranks = 2,
          .replicas = replicas,
          .tensor = 2,
          .experts = experts,
          .rows = true,
          .context = context,
          .whole_experts = true};
}
PeakCase folded_and_sharded(int zero, int experts) {
  PeakCase c = folded("1f1b", 2, experts);
  c.sharded = true;
  c.zero = zero;
  return c;
}

/// Keys and values go round the ranks along cp.
PeakCase ring(const char* model, const char* schedule, int context, int tensor = 1,
              RecomputeSpec::Kind recompute = RecomputeSpec::Kind::None) {
  return {.model = model,
          .schedule = schedule,
          .ranks = 2,
          .recompute = recompute,
          .tensor = tensor,
          .context = context,
          .ring = true};
}

constexpr auto kFull = RecomputeSpec::Kind::Full, kSelective = RecomputeSpec::Kind::Selective;

INSTANTIATE_TEST_SUITE_P(
    Executor, MemoryPeaks,
    testing::Values(
        PeakCase{"transformer", "gpipe"}, PeakCase{"transformer", "1f1b"},
        PeakCase{"transformer", "interleaved", 2, 4, 2}, PeakCase{"transformer", "zb-h1"},
        PeakCase{"transformer", "zb-h2"}, PeakCase{"transformer", "zbv", 4, 8, 2},
        PeakCase{"transformer", "pipedream"}, PeakCase{"transformer", "pipedream-2bw"},
        PeakCase{"mlp", "pipedream", 4, 8, 1, 1, 64}, PeakCase{"transformer", "chimera"},
        PeakCase{"transformer", "dualpipe"},
        PeakCase{.model = "transformer", .schedule = "1f1b", .recompute = kFull},
        PeakCase{.model = "transformer", .schedule = "1f1b", .recompute = kSelective},
        PeakCase{.model = "transformer", .schedule = "zb-h1", .recompute = kSelective},
        PeakCase{.model = "transformer", .schedule = "1f1b", .ranks = 2, .replicas = 2},
        PeakCase{
            .model = "transformer", .schedule = "1f1b", .ranks = 2, .replicas = 2, .sharded = true},
        PeakCase{.model = "transformer", .schedule = "1f1b", .optimizer = "sgd"},
        PeakCase{.model = "transformer", .schedule = "1f1b", .ranks = 2, .tensor = 2},
        PeakCase{.model = "transformer", .schedule = "zb-h1", .ranks = 2, .tensor = 4},
        PeakCase{.model = "llama", .schedule = "1f1b", .ranks = 2, .recompute = kFull, .tensor = 2},
        PeakCase{.model = "llama", .schedule = "gpipe", .ranks = 2, .tensor = 2},
        PeakCase{.model = "transformer",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .replicas = 2,
                 .sharded = true,
                 .tensor = 2},
        PeakCase{.model = "transformer", .schedule = "1f1b", .ranks = 2, .tensor = 2, .rows = true},
        PeakCase{
            .model = "transformer", .schedule = "zb-h1", .ranks = 2, .tensor = 4, .rows = true},
        PeakCase{.model = "llama", .schedule = "gpipe", .ranks = 2, .tensor = 2, .rows = true},
        PeakCase{.model = "llama",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .recompute = kFull,
                 .tensor = 2,
                 .rows = true},
        PeakCase{.model = "mixtral", .schedule = "1f1b", .ranks = 2, .tensor = 2, .rows = true},
        PeakCase{.model = "transformer", .schedule = "1f1b", .ranks = 2, .context = 2},
        PeakCase{.model = "transformer", .schedule = "zb-h1", .ranks = 2, .context = 4},
        PeakCase{
            .model = "transformer", .schedule = "gpipe", .ranks = 2, .tensor = 2, .context = 2},
        PeakCase{.model = "transformer",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .tensor = 2,
                 .rows = true,
                 .context = 2},
        PeakCase{.model = "llama",
                 .schedule = "zb-h1",
                 .ranks = 2,
                 .tensor = 2,
                 .rows = true,
                 .context = 2},
        PeakCase{.model = "llama",
                 .schedule = "gpipe",
                 .ranks = 2,
                 .recompute = kFull,
                 .tensor = 2,
                 .rows = true,
                 .context = 2},
        PeakCase{.model = "mixtral",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .tensor = 2,
                 .rows = true,
                 .context = 2},
        PeakCase{.model = "llama", .schedule = "zb-h1", .ranks = 2, .context = 2},
        PeakCase{.model = "llama", .schedule = "gpipe", .ranks = 2, .context = 4},
        PeakCase{
            .model = "llama", .schedule = "zb-h1", .ranks = 2, .micro_batch_size = 2, .context = 2},
        PeakCase{
            .model = "llama", .schedule = "1f1b", .ranks = 2, .recompute = kFull, .context = 2},
        PeakCase{.model = "llama",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .recompute = kSelective,
                 .context = 2},
        PeakCase{.model = "llama",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .replicas = 2,
                 .sharded = true,
                 .context = 2},
        PeakCase{.model = "llama",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .replicas = 2,
                 .sharded = true,
                 .zero = 3,
                 .context = 2},
        PeakCase{.model = "mixtral", .schedule = "1f1b", .ranks = 2, .context = 2},
        PeakCase{.model = "mixtral", .schedule = "gpipe", .ranks = 2, .context = 4},
        PeakCase{.model = "mixtral", .schedule = "zb-h1", .ranks = 2, .tensor = 2, .context = 2},
        PeakCase{
            .model = "mixtral", .schedule = "1f1b", .ranks = 2, .recompute = kFull, .context = 2},
        PeakCase{.model = "capped", .schedule = "1f1b", .ranks = 2, .context = 2},
        PeakCase{.model = "deepseek", .schedule = "zb-h1", .ranks = 2, .context = 2},
        PeakCase{.model = "deepseek", .schedule = "gpipe", .ranks = 2, .context = 4},
        PeakCase{.model = "deepseek",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .recompute = kSelective,
                 .context = 2},
        PeakCase{.model = "evenly",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .replicas = 2,
                 .experts = 2,
                 .context = 2},
        PeakCase{.model = "evenly",
                 .schedule = "1f1b",
                 .ranks = 2,
                 .replicas = 2,
                 .sharded = true,
                 .experts = 2,
                 .zero = 3,
                 .context = 2},
        ring("transformer", "1f1b", 2), ring("llama", "zb-h1", 4), ring("llama", "gpipe", 2, 2),
        ring("llama", "1f1b", 2, 1, kSelective), ring("transformer", "1f1b", 4, 1, kFull),
        copied("transformer", "1f1b"), copied("transformer", "1f1b", true),
        copied("transformer", "gpipe", true, "sgd"), copied("llama", "zb-h1", false, "sgd"),
        copied("mixtral", "1f1b"), copied("deepseek", "gpipe", true), copied("llama", "chimera"),
        PeakCase{"transformer", "interleaved", 2, 4, 2, 2, 2},
        PeakCase{
            .model = "llama", .schedule = "1f1b", .ranks = 2, .micro_batch_size = 2, .context = 2},
        divided("1f1b", 1, 2), divided("1f1b", 1, 3), divided("interleaved", 2, 2),
        divided("interleaved", 2, 3), divided("zbv", 2, 2), divided("zbv", 2, 3),
        divided("gpipe", 1, 3), divided("dualpipe", 1, 1), divided("chimera", 1, 1),
        PeakCase{"llama", "gpipe"}, PeakCase{"llama", "1f1b"}, PeakCase{"llama", "zb-h1"},
        PeakCase{.model = "llama", .schedule = "1f1b", .recompute = kSelective},
        PeakCase{"mixtral", "gpipe"}, PeakCase{"mixtral", "1f1b"}, PeakCase{"mixtral", "zb-h1"},
        PeakCase{.model = "mixtral", .schedule = "1f1b", .recompute = kFull},
        PeakCase{.model = "mixtral", .schedule = "1f1b", .ranks = 2, .replicas = 2},
        PeakCase{.model = "mixtral", .schedule = "1f1b", .ranks = 2, .tensor = 2},
        PeakCase{"deepseek", "gpipe"}, PeakCase{"deepseek", "zb-h1"},
        PeakCase{.model = "deepseek", .schedule = "1f1b", .recompute = kSelective},
        PeakCase{.model = "deepseek", .schedule = "1f1b", .ranks = 2, .tensor = 4},
        PeakCase{.model = "evenly", .schedule = "1f1b", .ranks = 2, .replicas = 2, .experts = 2},
        divided_with_experts(1), divided_with_experts(2), divided_with_experts(3),
        folded("1f1b", 1, 2), folded("zb-h1", 1, 2), folded("1f1b", 2, 4), folded("1f1b", 1, 4, 2),
        folded("zb-h1", 1, 2, 2), folded_and_sharded(1, 2), folded_and_sharded(2, 2),
        folded_and_sharded(3, 2), folded_and_sharded(3, 4),
        PeakCase{.model = "evenly", .schedule = "zb-h1", .ranks = 2, .replicas = 4, .experts = 4},
        PeakCase{.model = "mlp", .schedule = "gpipe", .micro_batch_size = 64},
        PeakCase{.model = "mlp", .schedule = "1f1b", .micro_batch_size = 64},
        PeakCase{.model = "mlp", .schedule = "zb-h1", .micro_batch_size = 64},
        PeakCase{"mlp", "zbv", 2, 4, 2, 1, 64}, PeakCase{"mlp", "interleaved", 4, 8, 2, 1, 64},
        PeakCase{.model = "mlp", .schedule = "1f1b", .micro_batch_size = 64, .recompute = kFull},
        PeakCase{.model = "resnet-tiny", .schedule = "1f1b", .ranks = 2},
        PeakCase{.model = "resnet-tiny", .schedule = "gpipe", .ranks = 4},
        PeakCase{.model = "resnet-tiny", .schedule = "zb-h1", .ranks = 2},
        PeakCase{.model = "resnet-tiny", .schedule = "1f1b", .ranks = 2, .recompute = kFull}),
    [](const auto& one) { return name_of(one.param); });

}  // namespace memory_peaks_test
}  // namespace pipewright::tests
