// Mixtures of experts, and experts that ranks divide, on the host's tables for GPUs: in exact
// numerics the serial run's bits, whatever the order in which the GPUs' work is done; in floats
// within rounding, with exactly the Program's exchanges where NCCL carries rows.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/parity/divided/cuda_divided.hpp"
#include "tests/parity/divided/mixtures.hpp"

namespace pipewright::tests {
namespace cuda_experts_test {

using namespace cuda_divided;

/// The scores of DeepSeek's router, and the bias that balances experts.
Model grouped() {
  return mixture({{"scoring", "sigmoid"},
                  {"groups", 4},
                  {"top_groups", 2},
                  {"scaling", 2.5},
                  {"balance_loss", 0.02},
                  {"balance_rate", 0.01},
                  {"z_loss", 0.01}});
}
std::vector<Model> models() { return {mixtral(), dropping(), grouped()}; }

Order one_rank() { return planner::make_order("1f1b", {1, 4, 1, {}}); }
Order two_ranks() { return planner::make_order("1f1b", {2, 4, 1, {}}); }

/// Each rank has all of the experts.
TEST(CudaExperts, MixturesBesideDividedLayersHaveTheSerialRunsBits) {
  for (const Model& model : models()) {
    expect_serial_bits(Over::Copies, two_ranks(), model, {.tensor = 2});
    expect_serial_bits(Over::Nccl, one_rank(), model, {.tensor = 2, .rows = true});
  }
}

TEST(CudaExperts, DividedExpertsHaveTheSerialRunsBits) {
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    for (const Model& model : models())
      expect_serial_bits(over, two_ranks(), model, {.tensor = 1, .experts = 2});
    expect_serial_bits(over, one_rank(), mixtral(), {.tensor = 1, .experts = 4});
    expect_serial_bits(over, one_rank(), dropping(), {.tensor = 2, .experts = 2});
    expect_serial_bits(over, one_rank(), grouped(), {.tensor = 1, .replicas = 2, .experts = 2});
  }
}

TEST(CudaExperts, ExpertsFoldedOverRanksAlongTpHaveTheSerialRunsBits) {
  constexpr ExpertFold kFold = ExpertFold::Tensor;
  for (const Model& model : models()) {
    expect_serial_bits(Over::Copies, two_ranks(), model, {.rows = true, .fold = kFold});
    expect_serial_bits(Over::Nccl, one_rank(), model, {.experts = 2, .rows = true, .fold = kFold});
  }
  expect_serial_bits(Over::Copies, one_rank(), mixtral(),
                     {.replicas = 2, .sharded = true, .rows = true, .fold = kFold});
  for (const bool sharded : {false, true})
    expect_serial_bits(
        Over::Copies, one_rank(), mixtral(),
        {.sharded = sharded, .rows = true, .context = 2, .fold = ExpertFold::TensorAndContext});
}

/// Each expert's holders share it out, all replicas the rest.
TEST(CudaExperts, BesideZeroHaveTheSerialRunsBits) {
  const Layout alone{.tensor = 1, .sharded = true, .experts = 2};
  Layout replicas = alone, beside = alone;
  replicas.replicas = beside.tensor = 2;
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    for (Layout layout : {alone, replicas, beside}) {
      for (const int zero : {1, 2, 3}) {
        SCOPED_TRACE("ZeRO " + std::to_string(zero));
        layout.zero = zero;
        expect_serial_bits(over, one_rank(), zero == 2 ? dropping() : grouped(), layout);
      }
    }
  }
}

/// Whoever has some of the sequences' rows knows how often experts were chosen for the others'.
TEST(CudaExperts, BesideDividedSequencesHaveTheSerialRunsBits) {
  for (const Model& model : models()) {
    expect_serial_bits(Over::Copies, two_ranks(), model, {.tensor = 1, .context = 2});
    expect_serial_bits(Over::Nccl, one_rank(), model, {.tensor = 1, .experts = 2, .context = 2});
  }
  expect_serial_bits(Over::Copies, one_rank(), mixtral(),
                     {.tensor = 1, .context = 4, .ring = true});
}

/// DeepSeek's blocks.
TEST(CudaExperts, BehindLatentAttentionHaveTheSerialRunsBits) {
  const Model model =
      divisible_deepseek({{"sequence", 8}, {"capacity_factor", 1.1}, {"balance_loss", 0.02}});
  for (const Over over : {Over::Copies, Over::Nccl}) {
    SCOPED_TRACE(over == Over::Nccl ? "NCCL" : "copies");
    expect_serial_bits(over, two_ranks(), model, {.tensor = 1});
    expect_serial_bits(over, one_rank(), model, {.tensor = 2, .experts = 2});
    expect_serial_bits(over, one_rank(), model,
                       {.experts = 2, .rows = true, .fold = ExpertFold::Tensor});
    expect_serial_bits(over, one_rank(), model, {.tensor = 1, .experts = 2, .context = 2});
  }
  expect_serial_bits(Over::Copies, two_ranks(), model,
                     {.tensor = 1, .replicas = 2, .sharded = true, .experts = 2});
  expect_serial_bits(Over::Copies, two_ranks(), divisible_deepseek({{"tied_head", true}}),
                     {.tensor = 1, .experts = 2});
  const std::vector<LayerRecompute> recompute(model.layers.size(), LayerRecompute::Attention);
  expect_serial_bits(Over::Copies, planner::make_order("zb-h1", {2, 4, 1, {}}), model,
                     {.tensor = 1, .recompute = recompute, .experts = 2});
}

TEST(CudaExperts, OtherSchedulesAndRecomputedLayersToo) {
  for (const char* schedule : {"gpipe", "zb-h1", "zbv"}) {
    SCOPED_TRACE(schedule);
    const int chunks = std::string(schedule) == "zbv" ? 2 : 1;
    const Order order = planner::make_order(schedule, {2, 4, chunks, {}});
    expect_serial_bits(Over::Copies, order, mixtral(), {.tensor = 1, .experts = 2});
  }
  const Model model = dropping();
  const std::vector<LayerRecompute> recompute(model.layers.size(), LayerRecompute::Whole);
  expect_serial_bits(Over::Copies, two_ranks(), model,
                     {.tensor = 1, .recompute = recompute, .experts = 2});
}

int exchanges_of(const Program& program) {
  int exchanges = 0;
  for (const Instruction& in : program.code)
    exchanges += in.kind == ActionKind::AllToAll && in.in_collective() ? 1 : 0;
  return exchanges;
}
/// Those before which members tell one another how many rows come: the first one of a layer.
int counted_exchanges_of(const Program& program) {
  int exchanges = 0;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (program.code[id].kind != ActionKind::AllToAll || !program.code[id].in_collective())
      continue;
    const Action* const owner = program.action_of_part(id);
    if (owner == nullptr || owner->kind != ActionKind::F) continue;
    exchanges += program.text(id).find("/dispatch") != std::string::npos ? 1 : 0;
  }
  return exchanges;
}
/// Groups of calls that connect communicators.
int connecting_groups(const Program& program) {
  int groups = 0;
  const auto plan = exec::nccl::communicators_of(program, costs_of(program, 1000));
  for (const auto& warm_up : plan.warm_ups) {
    if (!warm_up.edges.empty())
      groups += static_cast<int>(plan.communicators[warm_up.communicator].members.size());
  }
  return groups;
}

/// SGD: AdamW would make of a gradient's rounding another update. Without messages there are no
/// groups of calls but exchanges.
void expect_exchanged(Over over, const Model& model, const Layout& layout) {
  for (const CommPolicy& policy : policies_of(over)) {
    SCOPED_TRACE(to_string(policy.issue));
    const Program program = divided(one_rank(), model, layout, policy, Numerics::Fast);
    ASSERT_GT(exchanges_of(program), 0);
    const int expected = over == Over::Copies
                             ? 0
                             : connecting_groups(program) +
                                   kSteps * (exchanges_of(program) + counted_exchanges_of(program));
    DividedSetting setting(program, model, Numerics::Fast, layout);
    CudaTraining how = training_of(setting, Precision::Float32);
    how.training.optimizer.kind = exec::OptimizerKind::Sgd;
    for (const HostOrder streams : {HostOrder::Lazy, HostOrder::Shuffled}) {
      const int before = host_nccl_threads();
      const CudaResult run = trained(over, streams, program, how);
      ASSERT_TRUE(run.finished());
      EXPECT_EQ(host_nccl_threads() - before, expected);
      EXPECT_LE(run.verify->gradients.norm_rel, 3e-6) << run.verify->gradients.worst;
      EXPECT_LE(run.verify->parameters.norm_rel, 3e-6) << run.verify->parameters.worst;
      for (InstructionId id = 0; id < program.code.size(); ++id)
        EXPECT_GE(run.timeline.end[id], run.timeline.start[id]) << program.text(id);
    }
  }
}

TEST(CudaExperts, RowsGoToTheirExpertsOverNccl) {
  for (const Model& model : {dropping(), grouped()}) {
    for (const Over over : {Over::Copies, Over::Nccl})
      expect_exchanged(over, model, {.tensor = 1, .experts = 2});
    expect_exchanged(Over::Nccl, model, {.tensor = 2, .rows = true, .fold = ExpertFold::Tensor});
  }
  expect_exchanged(Over::Nccl, mixtral(), {.tensor = 1, .experts = 4});
  expect_exchanged(Over::Nccl, mixtral(),
                   {.tensor = 1, .replicas = 2, .sharded = true, .experts = 2});
}

/// NCCL sums what all replicas hold in place, and the counts of choices with it; and where an
/// expert is on two, their gradients of it by a call of its own.
TEST(CudaExperts, NcclSumsWhatAllReplicasHoldAndTheExpertsOfSome) {
  for (const auto& [tensor, replicas] : {std::pair(1, 1), {1, 2}, {2, 1}, {2, 2}}) {
    const Layout layout{.tensor = tensor, .replicas = replicas, .experts = 2};
    const Program program =
        divided(one_rank(), grouped(), layout, policies_of(Over::Nccl).front(), Numerics::Fast);
    DividedSetting setting(program, grouped(), Numerics::Fast, layout);
    CudaTraining how = training_of(setting, Precision::Float32);
    how.training.optimizer.kind = exec::OptimizerKind::Sgd;
    const int sums = calls_of_groups(program, ActionKind::ReduceGrad), before = host_nccl_sums();
    const CudaResult run = trained(Over::Nccl, HostOrder::Lazy, program, how);
    ASSERT_TRUE(run.finished());
    const int inside = calls_of_groups(program, ActionKind::AllReduce);
    EXPECT_EQ(
        host_nccl_sums() - before,
        connecting_sums(program) + kSteps * (sums * replicas + inside + calls_of_all(program)));
    EXPECT_LE(run.verify->gradients.norm_rel, 3e-6) << run.verify->gradients.worst;
    EXPECT_LE(run.verify->parameters.norm_rel, 3e-6) << run.verify->parameters.worst;
  }
}

TEST(CudaExperts, SixteenBitsStayWithinTheirRounding) {
  const Model model = mixtral();
  for (const Layout& layout : {Layout{.tensor = 1, .experts = 2}, Layout{.tensor = 2, .rows = true},
                               Layout{.tensor = 1, .replicas = 2, .sharded = true, .experts = 2},
                               Layout{.tensor = 2, .rows = true, .fold = ExpertFold::Tensor}}) {
    for (const Over over : {Over::Copies, Over::Nccl}) {
      const Program program =
          divided(two_ranks(), model, layout, policies_of(over).front(), Numerics::Fast);
      DividedSetting setting(program, model, Numerics::Fast, layout);
      CudaTraining how = training_of(setting, Precision::Bfloat16);
      how.training.verified_steps = 1;
      const CudaResult run = trained(over, HostOrder::Lazy, program, how);
      ASSERT_TRUE(run.finished());
      EXPECT_LE(run.verify->gradients.norm_rel, 3e-2) << run.verify->gradients.worst;
      EXPECT_GT(run.verify->gradients.norm_rel, 1e-4);
    }
  }
}

TEST(CudaExperts, AStepWithARouterIsNoGraph) {
  const Layout layout{.tensor = 1};
  const Model model = mixtral();
  const Program program = divided(one_rank(), model, layout);
  DividedSetting setting(program, model, Numerics::Exact, layout);
  CudaTraining how = training_of(setting, Precision::Exact);
  how.as_graph = true;
  try {
    trained(Over::Copies, HostOrder::Eager, program, how);
    FAIL() << "a graph of a step whose products the router decides";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("how many rows an expert takes"), std::string::npos)
        << error.what();
  }
}

}  // namespace cuda_experts_test
}  // namespace pipewright::tests
