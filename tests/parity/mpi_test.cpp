// The transport between processes, for real: in a job of mpirun with one rank a process, every
// schedule on both devices, random Programs against check, and what is timed. The same tests run
// in jobs of 1, 2 and 4 processes; a test takes the Programs that have so many ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/model/architecture_model.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/collectives/process/job_groups.hpp"
#include "exec/collectives/process/wire_group.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/search/search.hpp"
#include "sim/engine.hpp"
#include "tests/parity/divided/divided_program.hpp"
#include "tests/parity/forward_run.hpp"
#include "tests/parity/mpi_job.hpp"
#include "tests/parity/outcome.hpp"
#include "tests/parity/update_cases.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/random_program.hpp"

namespace pipewright::tests {
namespace mpi_test {

using exec::RunResult;
using planner::Schedule;

int processes() { return job_link().processes(); }
bool is_first() { return job_link().process() == 0; }

RunResult run_paced(const Program& program, const CostTable& costs, exec::RunOptions options) {
  exec::mpi::MpiTransport transport(program, exec::local::paced_messages(program, costs),
                                    job_link());
  try {
    return exec::paced::run_paced(program, costs, options, transport);
  } catch (const exec::RunFailed& failed) {
    return failed.result();  // of a run that another process has ended
  }
}

exec::cpu::CpuResult train(const Program& program, const exec::cpu::Training& training, int steps,
                           const exec::cpu::GroupOfProcesses& group_of = {}) {
  const CostTable costs = costs_of(program, 1000);
  exec::mpi::MpiTransport transport(program, exec::local::real_messages(program, costs),
                                    job_link());
  return exec::cpu::run_on_cpu(program, costs, training, {.steps = steps}, transport, group_of);
}

struct Runnable {
  const Schedule* schedule;
  Order order;
  Program program;
};

/// Of every schedule of the registry that takes so many ranks and does not hang by itself.
std::vector<Runnable> every_program() {
  std::vector<Runnable> programs;
  for (const Schedule& schedule : planner::schedules()) {
    const int m = micro_batches_for(schedule, processes());
    if (m == 0) continue;
    const Order order =
        planner::make_order(schedule.name, {processes(), m, schedule.default_chunks, {}});
    const char* policy = schedule.policy.empty() ? "torch" : schedule.policy.data();
    Program program = lower(order, comm_policy_preset(policy), {.optimizer = true});
    if (sim::check(program, costs_of(program, 1000)).verdict != Verdict::Ok) continue;
    programs.push_back({&schedule, order, std::move(program)});
  }
  return programs;
}

TEST(Mpi, EveryScheduleFinishesOnThePacedDevice) {
  int ran = 0;
  for (const auto& [schedule, order, program] : every_program()) {
    SCOPED_TRACE(schedule->name);
    const RunResult run = run_paced(program, costs_of(program, 20'000), {.steps = 2});
    ASSERT_TRUE(run.finished()) << run.failure;
    EXPECT_EQ(run.steps.size(), 2U);
    // Every process has the times of all ranks.
    for (InstructionId id = 0; id < program.code.size(); ++id) {
      EXPECT_GE(run.timeline.end[id], run.timeline.start[id]) << program.text(id);
    }
    ++ran;
  }
  EXPECT_GE(ran, processes() == 1 ? 1 : 8);
}

/// What is trained besides the small perceptron's plain step.
struct Extras {
  Model model = small_model();
  double clip_grad_norm = 0;
  RecomputeSpec recompute = {};
};

void expect_serial_bits(const Program& program, const Extras& extras = {}) {
  Setting setting(program, extras.model);
  setting.training.verified_steps = 3;
  setting.training.options.numerics = exec::Numerics::Exact;
  setting.training.options.recompute = recompute_of(extras.model, extras.recompute);
  setting.training.optimizer.clip_grad_norm = extras.clip_grad_norm;
  const auto run = train(program, setting.training, 3);
  ASSERT_TRUE(run.finished()) << run.failure;
  EXPECT_TRUE(run.steps.back().loss.has_value());  // in every process
  if (!is_first()) return;
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_TRUE(run.verify->gradients.bitwise) << run.verify->gradients.worst;
  EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
}

TEST(Mpi, EverySynchronousScheduleGivesTheSerialGradientsAndParametersBitForBit) {
  int ran = 0;
  for (const auto& [schedule, order, program] : every_program()) {
    if (schedule->traits.asynchronous) continue;
    SCOPED_TRACE(schedule->name);
    expect_serial_bits(program);
    ++ran;
  }
  EXPECT_GE(ran, processes() == 1 ? 1 : 6);
}

TEST(Mpi, EverySynchronousScheduleGivesTheSerialGradientsWithAFastLibrary) {
  for (const auto& [schedule, order, program] : every_program()) {
    if (schedule->traits.asynchronous) continue;
    SCOPED_TRACE(schedule->name);
    Setting setting(program);
    setting.training.verified_steps = 2;
    const auto run = train(program, setting.training, 2);
    ASSERT_TRUE(run.finished()) << run.failure;
    if (!is_first()) continue;
    ASSERT_TRUE(run.verify.has_value());
    EXPECT_LE(run.verify->gradients.norm_rel, 1e-6) << run.verify->gradients.worst;
  }
}

TEST(Mpi, ReplicasOfAPipelineGiveTheSerialBitsShardedOrNot) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const int ranks = processes() / 2;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const Order one = planner::make_order(schedule, {ranks, 2 * ranks, 1, {}});
    for (const bool sharded : {false, true}) {
      SCOPED_TRACE(std::string(schedule) + (sharded ? " sharded" : ""));
      expect_serial_bits(
          lower(planner::replicate(one, 2), CommPolicy{}, {.optimizer = true, .sharded = sharded}));
    }
    for (const int zero : {2, 3}) {
      SCOPED_TRACE(std::string(schedule) + " ZeRO stage " + std::to_string(zero));
      expect_serial_bits(lower(planner::replicate(one, 2), CommPolicy{},
                               {.optimizer = true, .sharded = true, .sharding = {.zero = zero}}));
    }
  }
}

TEST(Mpi, ClippingRecomputeAndATiedHeadGiveTheSerialBitsToo) {
  const Model tied = tied_transformer();
  for (const auto& [schedule, order, program] : every_program()) {
    if (schedule->traits.asynchronous) continue;
    SCOPED_TRACE(schedule->name);
    LowerOptions options{.clips = true, .optimizer = true};
    expect_serial_bits(lower(order, program.policy, options),
                       {small_model(), 0.01, {RecomputeSpec::Kind::Full, {}}});
    options.tied = tied_stages(tied, equal_stages(tied, program));
    expect_serial_bits(lower(order, program.policy, options),
                       {tied, 0.01, {RecomputeSpec::Kind::Selective, {}}});
  }
}

exec::cpu::GroupOfProcesses through_windows() {
  return [groups = std::make_shared<exec::collectives::JobGroups>(job_link())](
             std::span<const RankId> ranks, const exec::collectives::Look& look) {
    return groups->group(ranks, look);
  };
}
/// As between hosts.
exec::cpu::GroupOfProcesses over_the_wire() {
  return [mail = std::make_shared<exec::collectives::Mail>(job_link())](
             std::span<const RankId> ranks, const exec::collectives::Look& look) {
    std::vector<int> who;
    for (const RankId rank : ranks) who.push_back(exec::mpi::process_of_rank(rank));
    return exec::collectives::wire_group(mail, who, look);
  };
}

TEST(Mpi, RanksThatDivideLayersGiveTheSerialBits) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  int ran = 0;
  for (const int tensor : {2, 4}) {
    if (processes() % tensor != 0) continue;
    const int rest = processes() / tensor;
    for (const bool replicas : {false, true}) {
      if (replicas && rest < 2) continue;
      const Layout layout{.tensor = tensor, .replicas = replicas ? rest : 1, .sharded = replicas};
      const Order pipeline = planner::make_order("1f1b", {replicas ? 1 : rest, 4, 1, {}});
      const Program program = divided(pipeline, divisible_tied(), layout);
      for (const auto& group_of : {through_windows(), over_the_wire()}) {
        DividedSetting setting(program, divisible_tied(), exec::Numerics::Exact, layout);
        setting.training.verified_steps = 2;
        const auto run = train(program, setting.training, 2, group_of);
        ASSERT_TRUE(run.finished()) << run.failure;
        ++ran;
        if (!is_first()) continue;
        EXPECT_TRUE(run.verify.value().gradients.bitwise) << run.verify->gradients.worst;
        EXPECT_TRUE(run.verify.value().parameters.bitwise) << run.verify->parameters.worst;
      }
    }
  }
  EXPECT_EQ(ran, processes() == 4 ? 6 : 2);
}

/// Groups of ranks through windows of memory and over the wire: the serial run's parameters to the
/// bit in exact numerics, its gradients nearly in fast ones.
void expect_serial_run_among(const Program& program, const Model& model, const Layout& layout,
                             exec::Numerics numerics) {
  for (const auto& group_of : {through_windows(), over_the_wire()}) {
    DividedSetting setting(program, model, numerics, layout);
    setting.training.verified_steps = 2;
    const auto run = train(program, setting.training, 2, group_of);
    ASSERT_TRUE(run.finished()) << run.failure;
    if (!is_first()) continue;
    EXPECT_LT(run.verify.value().gradients.norm_rel, 2e-6);
    EXPECT_EQ(run.verify.value().parameters.bitwise, numerics == exec::Numerics::Exact);
  }
}

TEST(Mpi, RanksThatDivideRowsGiveTheSerialBits) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Layout layout{.tensor = processes(), .rows = true};
  const Model model = divisible_model({{"style", "llama"}, {"sequence", 8}});
  const Program program = divided(planner::make_order("1f1b", {1, 4, 1, {}}), model, layout);
  for (const exec::Numerics numerics : {exec::Numerics::Exact, exec::Numerics::Fast})
    expect_serial_run_among(program, model, layout, numerics);
}

TEST(Mpi, RanksThatDivideSequencesGiveTheSerialBits) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Model model = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  for (const Layout& layout :
       {Layout{.tensor = 1, .context = processes()},
        Layout{.tensor = processes() / 2, .context = 2},
        Layout{.tensor = processes() / 2, .rows = processes() > 2, .context = 2},
        Layout{
            .tensor = 1, .replicas = processes() / 2, .sharded = true, .zero = 3, .context = 2}}) {
    for (const exec::Numerics numerics : {exec::Numerics::Exact, exec::Numerics::Fast}) {
      const Program program =
          divided(planner::make_order("1f1b", {1, 4, 1, {}}), model, layout, "torch", numerics);
      expect_serial_run_among(program, model, layout, numerics);
    }
  }
}

TEST(Mpi, RanksRoundWhichKeysGoGiveTheSerialBits) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Model model = with_eight_tokens({{"style", "llama"}, {"kv_heads", 4}});
  for (const Layout& layout :
       {Layout{.tensor = 1, .context = processes(), .ring = true},
        Layout{.tensor = processes() / 2, .rows = processes() > 2, .context = 2, .ring = true}}) {
    for (const exec::Numerics numerics : {exec::Numerics::Exact, exec::Numerics::Fast}) {
      const Program program =
          divided(planner::make_order("1f1b", {1, 4, 1, {}}), model, layout, "torch", numerics);
      expect_serial_run_among(program, model, layout, numerics);
    }
  }
}

TEST(Mpi, RanksThatDivideSequencesOfMixturesGiveTheSerialBits) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Model model =
      divisible_deepseek({{"sequence", 8}, {"capacity_factor", 1.1}, {"balance_loss", 0.02}});
  for (const Layout& layout : {Layout{.tensor = 1, .context = processes()},
                               Layout{.tensor = 1, .experts = processes() / 2, .context = 2}}) {
    for (const exec::Numerics numerics : {exec::Numerics::Exact, exec::Numerics::Fast}) {
      const Program program =
          divided(planner::make_order("1f1b", {1, 4, 1, {}}), model, layout, "torch", numerics);
      expect_serial_run_among(program, model, layout, numerics);
    }
  }
}

TEST(Mpi, RanksThatDivideExpertsGiveTheSerialBits) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Layout layout{.tensor = 1, .experts = 2};
  const Model model = divisible_mixtral();
  const Program program =
      divided(planner::make_order("1f1b", {processes() / 2, 4, 1, {}}), model, layout);
  for (const auto& group_of : {through_windows(), over_the_wire()}) {
    DividedSetting setting(program, model, exec::Numerics::Exact, layout);
    setting.training.verified_steps = 2;
    const auto run = train(program, setting.training, 2, group_of);
    ASSERT_TRUE(run.finished()) << run.failure;
    if (!is_first()) continue;
    EXPECT_TRUE(run.verify.value().gradients.bitwise) << run.verify->gradients.worst;
    EXPECT_TRUE(run.verify.value().parameters.bitwise) << run.verify->parameters.worst;
  }
}

TEST(Mpi, RanksWithWholeExpertsAlongTpGiveTheSerialBits) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Model model =
      divisible_deepseek({{"sequence", 8}, {"capacity_factor", 1.1}, {"balance_loss", 0.02}});
  std::vector<Layout> layouts{
      {.experts = processes() / 2, .rows = true, .fold = ExpertFold::Tensor}};
  if (processes() > 2)
    layouts.push_back({.rows = true, .context = 2, .fold = ExpertFold::TensorAndContext});
  for (const Layout& layout : layouts) {
    for (const exec::Numerics numerics : {exec::Numerics::Exact, exec::Numerics::Fast}) {
      const Program program =
          divided(planner::make_order("1f1b", {1, 4, 1, {}}), model, layout, "torch", numerics);
      expect_serial_run_among(program, model, layout, numerics);
    }
  }
}

/// The bytes of the parts by name, without the manifest.
std::map<std::string, std::string> parts_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> parts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".bin")
      parts[entry.path().filename().string()] = read_text(entry.path().string());
  }
  return parts;
}

/// Layers, rows, sequences and experts.
TEST(Mpi, RanksThatDivideLayersEvaluateAndPredictAsTheSerialForwardDoes) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Model model = with_eight_tokens(
      {{"style", "llama"}, {"kv_heads", 4}, {"experts", 4}, {"top_k", 2}, {"shared_ffn", 8}});
  const int half = processes() / 2;
  for (const Layout& layout :
       {Layout{.tensor = processes(), .rows = true}, Layout{.tensor = half, .context = 2},
        Layout{.tensor = half, .experts = 2},
        Layout{.tensor = 1, .replicas = half, .experts = 2}}) {
    for (const exec::RunMode mode : {exec::RunMode::Evaluate, exec::RunMode::Predict}) {
      const Program program = divided(planner::make_order("1f1b", {1, 4, 1, {}}), model, layout,
                                      "torch", exec::Numerics::Exact, mode);
      for (const auto& group_of : {through_windows(), over_the_wire()}) {
        DividedSetting setting(program, model, exec::Numerics::Exact, layout);
        setting.training.mode = mode;
        ForwardNumbers found;
        setting.training.outputs = into(found);
        const auto run = train(program, setting.training, 2, group_of);
        ASSERT_TRUE(run.finished()) << run.failure;
        found.report = run.evaluation.value();
        expect_equal(found, serial_forwards(setting.training, 2));
      }
    }
  }
}

TEST(Mpi, RanksThatDivideLayersSaveWhatThreadsSave) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  const Layout layout;
  const Program program =
      divided(planner::make_order("1f1b", {processes() / 2, 4, 1, {}}), divisible_tied(), layout);
  const DividedSetting setting(program, divisible_tied(), exec::Numerics::Exact, layout);
  const auto saved_in = [&](const std::filesystem::path& folder) {
    exec::cpu::Training training = setting.training;
    training.save = exec::CheckpointSpec{.folder = folder, .watch = {}};
    return training;
  };
  const test::Folder own;
  const std::filesystem::path all = exec::mpi::all_gather(job_link(), own.path().string()).front();
  for (const auto& group_of : {through_windows(), over_the_wire()}) {
    const auto run = train(program, saved_in(all / "job"), 2, group_of);
    ASSERT_TRUE(run.finished()) << run.failure;
    if (!is_first()) continue;
    exec::cpu::run_on_cpu(program, costs_of(program, 1000), saved_in(all / "threads"),
                          {.steps = 2});
    EXPECT_EQ(parts_in(exec::checkpoint_folder(all / "job", 2)),
              parts_in(exec::checkpoint_folder(all / "threads", 2)));
    EXPECT_EQ(exec::Checkpoint::open(all / "job").facts().step, 2);
  }
  exec::mpi::all_gather(job_link(), "");  // nobody's folder goes before all have left it
}

TEST(Mpi, LossesAreThoseOfThreadsBitForBit) {
  for (const UpdateCase& one : update_cases()) {
    const Program program = lower(one.order, CommPolicy{}, {.optimizer = true});
    if (program.ranks() != processes()) continue;
    SCOPED_TRACE(one.name);
    const Setting setting(program);
    const auto here =
        exec::cpu::run_on_cpu(program, costs_of(program, 1000), setting.training, {.steps = 4});
    const auto job = train(program, setting.training, 4);
    ASSERT_TRUE(job.finished()) << job.failure;
    ASSERT_EQ(job.steps.size(), here.steps.size());
    for (std::size_t i = 0; i < job.steps.size(); ++i) {
      EXPECT_EQ(job.steps[i].loss, here.steps[i].loss) << i;
    }
    EXPECT_EQ(job.peak_weight_versions, here.peak_weight_versions);
  }
}

TEST(Mpi, RandomProgramsStandWhereCheckSaysTheyDo) {
  const char* wanted = std::getenv("PIPEWRIGHT_MPI_SEEDS");
  const std::uint64_t count = wanted == nullptr ? 400 : std::stoull(wanted);
  int finished = 0, stuck = 0, disagreements = 0;
  for (std::uint64_t seed = 20'000; seed < 20'000 + count && disagreements < 3; ++seed) {
    const Case c = random_case(seed);
    if (!is_usable(c)) continue;
    const Program program = program_of(c);
    if (program.ranks() != processes()) continue;
    const CostTable costs = costs_of(c);
    const RunResult run = run_paced(program, costs, {.steps = 2});
    ++(run.finished() ? finished : stuck);
    if (!is_first()) continue;
    const std::string watchdog = text_of(program, run.stuck);
    const std::string check = text_of(program, sim::check(program, costs));
    if (watchdog == check) continue;
    ++disagreements;
    ADD_FAILURE() << "seed " << seed << "\n"
                  << shown(c) << "watchdog:\n"
                  << watchdog << "check:\n"
                  << check;
  }
  if (processes() > 1) {
    EXPECT_GT(finished, 10);
    EXPECT_GT(stuck, 5);
  }
  RecordProperty("finished", finished);
  RecordProperty("stuck", stuck);
}

TEST(Mpi, ClocksOfOneMachineAgreeWithinTheBoundThatIsStated) {
  const Program program = lower(planner::make_order("gpipe", {processes(), 4, 1, {}}), CommPolicy{},
                                {.optimizer = true});
  const RunResult run = run_paced(program, costs_of(program, 1000), {.steps = 1});
  ASSERT_EQ(run.clocks.size(), static_cast<std::size_t>(processes()));
  for (const exec::ClockError& clock : run.clocks) {
    // The truth is 0, and the offset was measured all the same.
    EXPECT_LE(std::abs(clock.offset_ns), clock.bound_ns);
    EXPECT_LE(std::abs(clock.offset_ns + clock.drift_ns), clock.bound_ns);
  }
  EXPECT_EQ(run.clocks.front().bound_ns, 0);  // process 0 has the clock
  if (processes() > 1) {
    EXPECT_GT(run.clocks.back().bound_ns, 0);
  }
}

TEST(Mpi, AnotherNumberOfRanksIsRefusedWithTheNumberToUse) {
  const int ranks = processes() + 1;
  const Program program = lower(planner::make_order("gpipe", {ranks, 4, 1, {}}), CommPolicy{}, {});
  try {
    run_paced(program, costs_of(program, 1000), {});
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("mpirun -np " + std::to_string(ranks)),
              std::string::npos)
        << error.what();
  }
}

TEST(Mpi, ASearchByAllProcessesHasTheAnswerOfOne) {
  Job job;
  job.architecture = architecture_preset("llama3-8b");
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset("dgx-h100", 8);
  job.global_batch = 32;
  planner::SearchOptions options;
  options.threads = 1;
  const planner::SearchResult alone = planner::search(job, nullptr, options);
  options.share = {job_link().process(), processes(),
                   [](const std::string& text) { return exec::mpi::all_gather(job_link(), text); }};
  const planner::SearchResult together = planner::search(job, nullptr, options);
  EXPECT_EQ(together.pruned, alone.pruned);
  ASSERT_TRUE(alone.best && together.best);
  EXPECT_EQ(to_text(to_json(*together.best)), to_text(to_json(*alone.best)));
}

}  // namespace mpi_test
}  // namespace pipewright::tests
