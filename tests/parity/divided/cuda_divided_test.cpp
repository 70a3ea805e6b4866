// Layers and sequences that ranks divide along tp and cp, on the host's tables for GPUs: in exact
// numerics the serial run's bits, whatever the order in which the GPUs' work is done; in floats
// within rounding, with exactly the Program's all-reduces where NCCL sums.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/memory/memory.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/cuda_divided.hpp"

namespace pipewright::tests {
namespace cuda_divided_test {

using namespace cuda_divided;

Model gpt_of_eight() { return with_eight_tokens(Json::object()); }
Model llama_of_eight() { return with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}}); }
Model latent_of_eight(Json changes = Json::object()) {
  changes["sequence"] = 8;
  return divisible_latent(changes);
}

/// Calls of NCCL, of each kind; sends and receives between stages count, too.
struct Calls {
  int sums = 0, scattered = 0, gathered = 0, sent = 0;
};
Calls calls_so_far() {
  return {host_nccl_sums(), host_nccl_scattered_sums(), host_nccl_gatherings(), host_nccl_calls()};
}
Calls since(const Calls& before) {
  const Calls now = calls_so_far();
  return {now.sums - before.sums, now.scattered - before.scattered, now.gathered - before.gathered,
          now.sent - before.sent};
}

/// What connects communicators: sums of those without an edge, a send and a receive over each edge.
Calls connecting(const Program& program) {
  Calls calls{.sums = connecting_sums(program)};
  const auto plan = exec::nccl::communicators_of(program, costs_of(program, 1000));
  for (const auto& warm_up : plan.warm_ups)
    calls.sent += 2 * static_cast<int>(warm_up.edges.size());
  return calls;
}

/// Members' calls of what goes from stage to stage.
int transfers_of(const Program& program) {
  return static_cast<int>(
      std::count_if(program.code.begin(), program.code.end(),
                    [](const Instruction& in) { return is_transfer(in.kind); }));
}

TEST(CudaDivided, LayersHaveTheSerialRunsBits) {
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Over over : {Over::Copies, Over::Nccl}) {
    for (const Model& model : {divisible_model(), divisible_llama()}) {
      SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
      expect_serial_bits(over, alone, model, {.tensor = 2});
      expect_serial_bits(over, pipeline, model, {.tensor = 2});
      expect_serial_bits(over, alone, model, {.tensor = 2, .replicas = 2});
    }
    expect_serial_bits(over, alone, divisible_model(), {.tensor = 4});
  }
}

TEST(CudaDivided, OtherSchedulesReplicasAndTiedHeadsToo) {
  for (const char* schedule : {"gpipe", "zb-h1", "zbv"}) {
    SCOPED_TRACE(schedule);
    const int chunks = std::string(schedule) == "zbv" ? 2 : 1;
    const Order order = planner::make_order(schedule, {2, 4, chunks, {}});
    expect_serial_bits(Over::Copies, order, divisible_llama(), {.tensor = 2});
  }
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  expect_serial_bits(Over::Copies, pipeline, divisible_tied(), {.tensor = 2});
  for (const bool sharded : {false, true})
    expect_serial_bits(Over::Copies, pipeline, divisible_model(),
                       {.tensor = 2, .replicas = 2, .sharded = sharded});
}

/// 260 tokens make parts of 65 columns, which the sixteen parts of a sum do not divide; of 258 all
/// ranks have the whole table.
TEST(CudaDivided, VocabulariesThatDivideUnevenly) {
  const Order order = planner::make_order("1f1b", {1, 2, 1, {}});
  for (const int vocabulary : {260, 258})
    expect_serial_bits(Over::Copies, order, divisible_model({{"vocabulary", vocabulary}}),
                       {.tensor = 4});
}

TEST(CudaDivided, RecomputedLayersAskForTheirSumsAgain) {
  const Order order = planner::make_order("1f1b", {2, 2, 1, {}});
  const Model model = divisible_llama();
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    const std::vector<LayerRecompute> recompute(model.layers.size(), what);
    expect_serial_bits(Over::Copies, order, model, {.recompute = recompute});
  }
}

/// Members' sends and receives of what goes round: of each array one of either.
int calls_of_rounds(const Program& program) {
  std::int64_t least = 0, all = 0;
  for (const Instruction& in : program.code) {
    if (in.kind != ActionKind::RingSend) continue;
    const std::int64_t bytes = bytes_of(program.call(in));
    least = least == 0 ? bytes : std::min(least, bytes);
    all += bytes;
  }
  return least == 0 ? 0 : static_cast<int>(2 * all / least);
}

/// SGD: AdamW would make of a gradient's rounding another update.
void expect_brought_together(Over over, const Program& program, const DividedSetting& setting) {
  Calls expected;
  if (over == Over::Nccl) {
    const int shards = calls_of_groups(program, ActionKind::Unshard);
    const int of_replicas = calls_of_groups(program, ActionKind::ReduceGrad);
    expected = connecting(program);
    expected.sums += kSteps * (calls_of_groups(program, ActionKind::AllReduce) +
                               calls_of_all(program) + (shards > 0 ? 0 : of_replicas));
    expected.scattered = kSteps * (calls_of_groups(program, ActionKind::ReduceScatter) +
                                   (shards > 0 ? of_replicas : 0));
    // In a step that is looked at gradients are gathered beside the weights.
    expected.gathered = kSteps * (calls_of_groups(program, ActionKind::AllGather) + 2 * shards);
    expected.sent += kSteps * (transfers_of(program) + calls_of_rounds(program));
  }
  CudaTraining how = training_of(setting, Precision::Float32);
  how.training.optimizer.kind = exec::OptimizerKind::Sgd;
  for (const HostOrder streams : kOrders) {
    const Calls before = calls_so_far();
    const CudaResult run = trained(over, streams, program, how);
    ASSERT_TRUE(run.finished());
    const Calls made = since(before);
    EXPECT_EQ(made.sums, expected.sums);
    EXPECT_EQ(made.scattered, expected.scattered);
    EXPECT_EQ(made.gathered, expected.gathered);
    EXPECT_EQ(made.sent, expected.sent);
    EXPECT_LE(run.verify->gradients.norm_rel, 2e-6) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, 2e-6) << run.verify->parameters.worst;
    for (InstructionId id = 0; id < program.code.size(); ++id)
      EXPECT_GE(run.timeline.end[id], run.timeline.start[id]) << program.text(id);
  }
}

void expect_brought_together_by_nccl(const Model& model, const Layout& layout) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Over over : {Over::Copies, Over::Nccl}) {
    for (const CommPolicy& policy : policies_of(over)) {
      SCOPED_TRACE(to_string(policy.issue));
      const Program program = divided(order, model, layout, policy, Numerics::Fast);
      EXPECT_EQ(calls_of_groups(program, ActionKind::AllReduce) > 0, layout.tensor > 1);
      EXPECT_EQ(calls_of_groups(program, ActionKind::AllGather) > 0,
                layout.rows || layout.context > 1);
      expect_brought_together(over, program,
                              DividedSetting(program, model, Numerics::Fast, layout));
    }
  }
}

TEST(CudaDivided, FloatsAreSummedByNcclWhereTheyLie) {
  for (const Model& model : {divisible_model(), divisible_llama(), divisible_latent()})
    expect_brought_together_by_nccl(model, {.tensor = 2});
}

TEST(CudaDivided, ReplicasOfDividedLayersAreSummedByNcclToo) {
  expect_brought_together_by_nccl(divisible_llama(), {.tensor = 2, .replicas = 2});
}

TEST(CudaDivided, RowsAreScatteredAndGatheredByNccl) {
  for (const Model& model : {gpt_of_eight(), llama_of_eight(), latent_of_eight()})
    expect_brought_together_by_nccl(model, {.tensor = 2, .rows = true});
}

TEST(CudaDivided, DividedRowsHaveTheSerialRunsBits) {
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  const Layout rows{.tensor = 2, .rows = true};
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    for (const char* style : {"gpt", "llama"}) {
      const Model model = with_eight_tokens({{"style", style}});
      expect_serial_bits(over, alone, model, rows);
      expect_serial_bits(over, pipeline, model, rows);
    }
  }
  // All ranks have the whole head, and see all rows in front of it; a table of two stages; norms
  // of replicas.
  expect_serial_bits(Over::Copies, pipeline, with_eight_tokens({{"vocabulary", 258}}),
                     {.tensor = 4, .rows = true});
  expect_serial_bits(Over::Copies, pipeline, with_eight_tokens({{"tied_head", true}}), rows);
  expect_serial_bits(Over::Copies, alone, with_eight_tokens(Json::object()),
                     {.tensor = 2, .replicas = 2, .sharded = true, .rows = true});
}

TEST(CudaDivided, SequencesHaveTheSerialRunsBits) {
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    for (const Model& model : {gpt_of_eight(), llama_of_eight()}) {
      expect_serial_bits(over, alone, model, {.tensor = 1, .context = 2});
      expect_serial_bits(over, pipeline, model, {.tensor = 1, .context = 2});
    }
    expect_serial_bits(over, alone, llama_of_eight(), {.tensor = 1, .context = 4});
  }
}

TEST(CudaDivided, SequencesBesideAllElseHaveTheSerialRunsBits) {
  const Order alone = planner::make_order("zb-h1", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Model& model : {gpt_of_eight(), llama_of_eight()}) {
    expect_serial_bits(Over::Copies, alone, model, {.tensor = 2, .context = 2});
    expect_serial_bits(Over::Copies, alone, model, {.rows = true, .context = 2});
  }
  for (const bool sharded : {false, true})
    expect_serial_bits(Over::Copies, pipeline, llama_of_eight(),
                       {.tensor = 1, .replicas = 2, .sharded = sharded, .context = 2});
  const Model tied = with_eight_tokens({{"tied_head", true}});
  expect_serial_bits(Over::Copies, pipeline, tied, {.tensor = 1, .context = 2});
  expect_serial_bits(Over::Copies, alone, tied, {.tensor = 1, .context = 2});
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    const std::vector<LayerRecompute> recompute(llama_of_eight().layers.size(), what);
    expect_serial_bits(Over::Copies, alone, llama_of_eight(),
                       {.tensor = 1, .recompute = recompute, .context = 2});
  }
}

TEST(CudaDivided, KeysAreGatheredAndTheirGradientsScatteredByNccl) {
  for (const Model& model : {gpt_of_eight(), llama_of_eight(), latent_of_eight()})
    expect_brought_together_by_nccl(model, {.tensor = 1, .context = 2});
  expect_brought_together_by_nccl(llama_of_eight(), {.rows = true, .context = 2});
}

TEST(CudaDivided, LatentAttentionHasTheSerialRunsBits) {
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    expect_serial_bits(over, pipeline, divisible_latent(), {.tensor = 1});
    expect_serial_bits(over, pipeline, divisible_latent(), {.tensor = 2});
    expect_serial_bits(over, alone, latent_of_eight(), {.rows = true});
    expect_serial_bits(over, alone, latent_of_eight(), {.tensor = 1, .context = 2});
  }
  expect_serial_bits(Over::Copies, alone, divisible_latent(), {.tensor = 4});
  expect_serial_bits(Over::Copies, alone, latent_of_eight(), {.rows = true, .context = 2});
  expect_serial_bits(Over::Copies, alone, latent_of_eight(), {.tensor = 1, .context = 4});
  const Model model = latent_of_eight();
  for (const LayerRecompute what : {LayerRecompute::Whole, LayerRecompute::Attention}) {
    const std::vector<LayerRecompute> recompute(model.layers.size(), what);
    expect_serial_bits(Over::Copies, alone, model, {.recompute = recompute});
    expect_serial_bits(Over::Copies, alone, model,
                       {.tensor = 1, .recompute = recompute, .context = 2});
  }
}

TEST(CudaDivided, KeysThatGoRoundHaveTheSerialRunsBits) {
  const Order alone = planner::make_order("1f1b", {1, 4, 1, {}});
  const Order pipeline = planner::make_order("zb-h1", {2, 4, 1, {}});
  for (const Over over : {Over::Copies, Over::Nccl})
    expect_serial_bits(over, pipeline, llama_of_eight(), {.tensor = 1, .context = 2, .ring = true});
  expect_serial_bits(Over::Copies, alone, gpt_of_eight(),
                     {.tensor = 1, .context = 4, .ring = true});
}

TEST(CudaDivided, KeysGoRoundByNcclBesideTheComputation) {
  for (const Model& model : {gpt_of_eight(), llama_of_eight()})
    expect_brought_together_by_nccl(model, {.tensor = 1, .context = 2, .ring = true});
  const Order alone = planner::make_order("1f1b", {1, 2, 1, {}});
  const std::vector<LayerRecompute> attention(llama_of_eight().layers.size(),
                                              LayerRecompute::Attention);
  for (const Layout& layout :
       {Layout{.tensor = 1, .context = 4, .ring = true},
        Layout{.tensor = 2, .context = 2, .ring = true},
        Layout{.rows = true, .context = 2, .ring = true},
        Layout{.tensor = 1, .replicas = 2, .sharded = true, .context = 2, .ring = true},
        Layout{.tensor = 1, .recompute = attention, .context = 2, .ring = true}}) {
    for (const Over over : {Over::Copies, Over::Nccl}) {
      const Program program =
          divided(alone, llama_of_eight(), layout, policies_of(over).front(), Numerics::Fast);
      expect_brought_together(over, program,
                              DividedSetting(program, llama_of_eight(), Numerics::Fast, layout));
    }
  }
}

/// Widths of latent attention that keeps squares of scores in 16 bits, and that keeps none.
Json in_no_packs() { return {{"key_value_rank", 16}, {"plain", 18}, {"rotary", 6}, {"value", 14}}; }
Json in_packs() { return {{"key_value_rank", 16}, {"plain", 16}, {"rotary", 8}, {"value", 16}}; }

void expect_near_in_sixteen_bits(const Model& model, const std::vector<Layout>& layouts) {
  const Order order = planner::make_order("1f1b", {2, 4, 1, {}});
  for (const Layout& layout : layouts) {
    for (const Over over : {Over::Copies, Over::Nccl}) {
      const Program program =
          divided(order, model, layout, policies_of(over).front(), Numerics::Fast);
      DividedSetting setting(program, model, Numerics::Fast, layout);
      const CudaResult run =
          trained(over, HostOrder::Lazy, program, training_of(setting, Precision::Bfloat16));
      ASSERT_TRUE(run.finished());
      EXPECT_LE(run.verify->gradients.norm_rel, 3e-2) << run.verify->gradients.worst;
      EXPECT_GT(run.verify->gradients.norm_rel, 1e-4);
    }
  }
}

TEST(CudaDivided, SixteenBitsStayWithinTheirRounding) {
  const std::vector<Layout> gathered{
      {}, {.rows = true}, {.tensor = 1, .context = 2}, {.rows = true, .context = 2}};
  expect_near_in_sixteen_bits(llama_of_eight(), gathered);
  expect_near_in_sixteen_bits(llama_of_eight(), {{.tensor = 1, .context = 2, .ring = true}});
  expect_near_in_sixteen_bits(latent_of_eight({{"latent_attention", in_packs()}}), gathered);
}

/// Wide and long enough for activations to decide; in the numbers whose scratch memory is planned
/// as a GPU takes it.
void expect_planned(Model model, const std::vector<Layout>& layouts) {
  const Order order = planner::make_order("1f1b", {2, 2, 1, {}});
  model.bytes_per_element = 2;
  for (Layout layout : layouts) {
    layout.clips = false;  // which takes memory that the plan does not count
    SCOPED_TRACE("tp " + std::to_string(layout.tensor) + ", cp " + std::to_string(layout.context) +
                 (layout.ring ? ", ring" : ""));
    const Program program = divided(order, model, layout, "torch", Numerics::Fast);
    const DividedSetting setting(program, model, Numerics::Fast, layout);
    CudaTraining how = training_of(setting, Precision::Bfloat16);
    how.training.verified_steps = 0;
    const CudaResult run = trained(Over::Copies, HostOrder::Lazy, program, how);
    ASSERT_TRUE(run.finished());
    CostTable costs = costs_of(program, 1000);
    costs.memory = planner::memory_of(setting.model, setting.training.stages, kMicroBatchSize,
                                      "adamw", {}, layout.division());
    const auto planned = peaks_of(program, costs);
    for (std::size_t rank = 0; rank < run.memory.size(); ++rank) {
      const CudaResult::Memory& held = run.memory[rank];
      EXPECT_NEAR(static_cast<double>(planned[rank].peak_bytes) /
                      static_cast<double>(held.peak_activations + held.weights),
                  1, 0.05)
          << "rank " << rank;
    }
  }
}

TEST(CudaDivided, DividedSequencesHoldWhatIsPlanned) {
  const std::vector<Layout> gathered{{.tensor = 1, .context = 2}, {.rows = true, .context = 2}};
  const Model llama =
      with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}, {"hidden", 64}, {"sequence", 64}});
  expect_planned(llama, gathered);
  expect_planned(llama, {{.tensor = 1, .context = 2, .ring = true},
                         {.tensor = 1, .context = 4, .ring = true}});
  for (const Json& widths : {in_packs(), in_no_packs()}) {
    const Model latent =
        divisible_latent({{"hidden", 64}, {"sequence", 64}, {"latent_attention", widths}});
    expect_planned(latent, {{.tensor = 1}, {.rows = true}, {.tensor = 1, .context = 2}});
  }
}

}  // namespace cuda_divided_test
}  // namespace pipewright::tests
