// A training that goes on from a checkpoint gives the numbers of the one that was never
// interrupted, bit for bit, whatever plan goes on: other pipeline sizes, chunks, partitions and
// replicas, and the state of both optimizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/base/error.hpp"
#include "core/plan/tied_stages.hpp"
#include "exec/checkpoint/checkpoint_json.hpp"
#include "exec/devices/cpu/checkpointing.hpp"
#include "planner/plans/data_parallel.hpp"
#include "tests/parity/small_models.hpp"
#include "tests/parity/training_setting.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::tests {
namespace checkpoint_test {

namespace fs = std::filesystem;
using exec::Checkpoint;
using exec::RunResult;
using test::Folder;

constexpr int kMicroBatches = 8;

/// The refusal's sentence holds all the words.
template <class Action>
void expect_refusal(Action action, const std::vector<std::string>& words) {
  const InputError error = test::refusal(action);
  test::expect_one_line(error);
  for (const std::string& word : words) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

/// Every array of a checkpoint's state by name, and the steps behind it.
struct State {
  int step = 0, updates = 0;
  std::map<std::string, std::vector<float>> arrays;
};

State state_in(const fs::path& folder, const Model& model, const exec::OptimizerSpec& optimizer) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  State state{checkpoint.facts().step, checkpoint.facts().updates, {}};
  exec::cpu::Stage whole(model, 0, static_cast<int>(model.layers.size()), 1, 1, 99, optimizer);
  for (const auto& view : whole.state()) {
    std::vector<float>& array = state.arrays[view.parameter + "." + std::string(view.slot)];
    array.resize(view.values.size());
    checkpoint.read(view.parameter, view.slot, array);
  }
  return state;
}

void expect_same_bits(const State& found, const State& expected) {
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.updates, expected.updates);
  ASSERT_EQ(found.arrays.size(), expected.arrays.size());
  for (const auto& [name, array] : expected.arrays) {
    const std::vector<float>& other = found.arrays.at(name);
    ASSERT_EQ(other.size(), array.size()) << name;
    EXPECT_EQ(std::memcmp(other.data(), array.data(), array.size() * sizeof(float)), 0) << name;
  }
}

struct Part {
  RunCase plan;
  const fs::path* from = nullptr;
  int steps = 3;
  exec::OptimizerKind optimizer = exec::OptimizerKind::AdamW;
  int every = 0;
  exec::Numerics numerics = exec::Numerics::Fast;
  const Program* program = nullptr;  // instead of the plan's
  Model model = small_model();
};

/// Trains and saves the end in `folder`.
RunResult train(const Part& part, const fs::path& folder) {
  const Program program = part.program != nullptr ? *part.program : program_of(part.plan);
  Setting setting(program, part.model);
  setting.training.optimizer.kind = part.optimizer;
  setting.training.options.numerics = part.numerics;
  std::optional<Checkpoint> start;
  if (part.from != nullptr) start = Checkpoint::open(*part.from);
  if (start) setting.training.start = &*start;
  setting.training.save =
      exec::CheckpointSpec{.folder = folder, .every = part.every, .keep = 0, .watch = {}};
  RunResult result =
      exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training, {.steps = part.steps});
  EXPECT_TRUE(result.finished());
  return result;
}

State trained(const Part& part, const fs::path& folder) {
  train(part, folder);
  exec::OptimizerSpec optimizer;
  optimizer.kind = part.optimizer;
  return state_in(folder, part.model, optimizer);
}

/// All of them add the gradients of a stage in ascending order of micro-batches.
const std::vector<RunCase>& plans() {
  static const std::vector<RunCase> all = {
      {"naive", 1, kMicroBatches, 1, "torch"},       {"1f1b", 2, kMicroBatches, 1, "torch"},
      {"gpipe", 2, kMicroBatches, 1, "torch"},       {"1f1b", 4, kMicroBatches, 1, "torch"},
      {"interleaved", 2, kMicroBatches, 2, "torch"}, {"zb-h1", 4, kMicroBatches, 1, "torch"}};
  return all;
}

TEST(Resuming, SixStepsAreThreeAndThreeUnderOtherPlans) {
  const Folder whole_folder;
  const State whole = trained({.plan = plans()[1], .steps = 6}, whole_folder.path());
  ASSERT_EQ(whole.step, 6);
  for (std::size_t i = 0; i < plans().size(); ++i) {
    const Folder half;
    trained({.plan = plans()[i]}, half.path());
    for (std::size_t j = 1; j <= 3; ++j) {
      const RunCase& behind = plans()[(i + j) % plans().size()];
      SCOPED_TRACE(name_of(plans()[i]) + " then " + name_of(behind));
      const Folder end;
      expect_same_bits(trained({.plan = behind, .from = &half.path()}, end.path()), whole);
    }
  }
}

TEST(Resuming, InExactNumericsEverySynchronousScheduleGivesTheSame) {
  // Backwards in descending order, placements in a V, replicas that sum their gradients.
  const std::vector<RunCase> exact = {
      {"1f1b", 2, kMicroBatches, 1, "torch"},    {"zbv", 2, kMicroBatches, 2, "torch"},
      {"chimera", 4, kMicroBatches, 1, "torch"}, {"gpipe", 4, kMicroBatches, 1, "torch"},
      {"hanayo", 2, kMicroBatches, 2, "torch"},  {"zb-h2", 4, kMicroBatches, 1, "torch"},
      {"dualpipe", 2, kMicroBatches, 1, "torch"}};
  const Folder whole_folder;
  const State whole = trained({.plan = exact[0], .steps = 6, .numerics = exec::Numerics::Exact},
                              whole_folder.path());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const RunCase &before = exact[i], &behind = exact[(i + 1) % exact.size()];
    SCOPED_TRACE(name_of(before) + " then " + name_of(behind));
    const Folder half, end;
    train({.plan = before, .numerics = exec::Numerics::Exact}, half.path());
    expect_same_bits(
        trained({.plan = behind, .from = &half.path(), .numerics = exec::Numerics::Exact},
                end.path()),
        whole);
  }
}

TEST(Resuming, ReplicasThatShareOutTheOptimizersStateSaveItInPieces) {
  constexpr auto kExact = exec::Numerics::Exact;
  const Folder whole_folder;
  const State whole =
      trained({.plan = plans()[1], .steps = 6, .numerics = kExact}, whole_folder.path());
  for (const bool sharded : {false, true}) {
    SCOPED_TRACE(sharded ? "sharded" : "replicated");
    const Order one = planner::make_order("1f1b", {2, kMicroBatches / 2, 1, {}});
    const Program replicas = lower(planner::replicate(one, 2), comm_policy_preset("torch"),
                                   {.optimizer = true, .sharded = sharded});
    const Folder from_replicas, one_pipeline, from_one, two_pipelines, there, again;
    train({.numerics = kExact, .program = &replicas}, from_replicas.path());
    expect_same_bits(
        trained({.plan = plans()[3], .from = &from_replicas.path(), .numerics = kExact},
                one_pipeline.path()),
        whole);
    train({.plan = plans()[3], .numerics = kExact}, from_one.path());
    expect_same_bits(trained({.from = &from_one.path(), .numerics = kExact, .program = &replicas},
                             two_pipelines.path()),
                     whole);
    train({.numerics = kExact, .program = &replicas}, there.path());
    expect_same_bits(
        trained({.from = &there.path(), .numerics = kExact, .program = &replicas}, again.path()),
        whole);
  }
}

TEST(Resuming, WeightsThatReplicasDivideAreSavedInPieces) {
  constexpr auto kExact = exec::Numerics::Exact;
  const Folder whole_folder;
  const State whole =
      trained({.plan = plans()[1], .steps = 6, .numerics = kExact}, whole_folder.path());
  const Order one = planner::make_order("interleaved", {2, kMicroBatches / 4, 2, {}});
  for (const Sharding sharding :
       {Sharding{.zero = 2}, Sharding{.zero = 3}, Sharding{.zero = 3, .groups = 2}}) {
    SCOPED_TRACE(to_string(sharding));
    const Program replicas = lower(planner::replicate(one, 4), comm_policy_preset("torch"),
                                   {.optimizer = true, .sharded = true, .sharding = sharding});
    const Folder half, by_another, by_the_same;
    train({.numerics = kExact, .program = &replicas}, half.path());
    expect_same_bits(
        trained({.plan = plans()[3], .from = &half.path(), .numerics = kExact}, by_another.path()),
        whole);
    expect_same_bits(trained({.from = &half.path(), .numerics = kExact, .program = &replicas},
                             by_the_same.path()),
                     whole);
  }
}

TEST(Resuming, ATableInTwoStagesIsSavedOnceAndLoadedByBoth) {
  constexpr auto kExact = exec::Numerics::Exact;
  const Model model = tied_transformer();
  const auto tied = [&](const RunCase& plan) {
    const Program cut = program_of(plan);
    const Order order =
        planner::make_order(plan.schedule, {plan.ranks, plan.micro_batches, plan.chunks, {}});
    return lower(order, comm_policy_preset(plan.policy),
                 {.optimizer = true, .tied = tied_stages(model, equal_stages(model, cut))});
  };
  const Folder whole_folder;
  const State whole = trained({.plan = plans()[0], .steps = 6, .numerics = kExact, .model = model},
                              whole_folder.path());
  for (std::size_t i = 0; i < plans().size(); ++i) {
    const RunCase &before = plans()[i], &behind = plans()[(i + 1) % plans().size()];
    SCOPED_TRACE(name_of(before) + " then " + name_of(behind));
    const Program first = tied(before), second = tied(behind);
    const Folder half, end;
    train({.numerics = kExact, .program = &first, .model = model}, half.path());
    expect_same_bits(
        trained({.from = &half.path(), .numerics = kExact, .program = &second, .model = model},
                end.path()),
        whole);
  }
}

TEST(Resuming, PlainSgdHasNothingButItsWeights) {
  const auto sgd = exec::OptimizerKind::Sgd;
  const Folder whole_folder, half, end;
  const State whole =
      trained({.plan = plans()[1], .steps = 6, .optimizer = sgd}, whole_folder.path());
  trained({.plan = plans()[4], .optimizer = sgd}, half.path());
  expect_same_bits(
      trained({.plan = plans()[3], .from = &half.path(), .optimizer = sgd}, end.path()), whole);
}

TEST(Resuming, LossesGoOnWhereTheyWere) {
  const Folder folder;
  const RunResult whole = train({.plan = plans()[1], .steps = 6, .every = 3}, folder.path());
  const fs::path third = exec::checkpoint_folder(folder.path(), 3);
  const Folder end;
  const RunResult rest = train({.plan = plans()[3], .from = &third}, end.path());
  EXPECT_EQ(rest.first_step, 3);
  ASSERT_EQ(rest.steps.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest.steps[i].loss, whole.steps[i + 3].loss);
}

TEST(Resuming, AnUnevenCutIsAPlanLikeOthers) {
  const Folder whole_folder, half, end;
  const State whole = trained({.plan = plans()[1], .steps = 6}, whole_folder.path());
  trained({.plan = plans()[1]}, half.path());
  const Program program = program_of(plans()[1]);
  Setting setting(program);
  setting.training.stages[0].end_layer = setting.training.stages[1].first_layer = 7;
  const Checkpoint start = Checkpoint::open(half.path());
  setting.training.start = &start;
  setting.training.save =
      exec::CheckpointSpec{.folder = end.path(), .every = 0, .keep = 0, .watch = {}};
  exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training, {.steps = 3});
  expect_same_bits(state_in(end.path(), setting.model, {}), whole);
}

TEST(Resuming, ReplicasOfAStageAreSavedOnceAndAllLoaded) {
  const RunCase two_ways{"chimera", 4, kMicroBatches, 1, "torch"};
  const Folder whole_folder, half, end;
  const State whole = trained({.plan = two_ways, .steps = 6}, whole_folder.path());
  trained({.plan = two_ways}, half.path());
  expect_same_bits(trained({.plan = two_ways, .from = &half.path()}, end.path()), whole);
}

TEST(Resuming, AnAsynchronousTrainingCountsItsUpdates) {
  const RunCase stashing{"pipedream", 2, kMicroBatches, 1, "torch"};
  const Folder whole_folder, half, end;
  const State whole = trained({.plan = stashing, .steps = 6}, whole_folder.path());
  EXPECT_GT(whole.updates, whole.step);
  trained({.plan = stashing}, half.path());
  expect_same_bits(trained({.plan = stashing, .from = &half.path()}, end.path()), whole);

  const Program program = program_of(plans()[1]);
  Setting setting(program);
  const Checkpoint start = Checkpoint::open(half.path());
  setting.training.start = &start;
  expect_refusal(
      [&] { exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training, {.steps = 1}); },
      {"asynchronous", std::to_string(start.facts().updates) + " updates in 3 steps"});
}

TEST(Resuming, VerifyAgreesWithASerialRunFromTheSamePlace) {
  const Folder half;
  train({.plan = plans()[1]}, half.path());
  const Program program = program_of(plans()[3]);
  Setting setting(program);
  const Checkpoint start = Checkpoint::open(half.path());
  setting.training.start = &start;
  setting.training.verified_steps = 2;
  const auto run =
      exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training, {.steps = 2});
  ASSERT_TRUE(run.verify.has_value());
  EXPECT_TRUE(run.verify->parameters.bitwise) << run.verify->parameters.worst;
}

/// What the sentence has to say when this training starts from a checkpoint of the usual one.
void expect_refused(const std::function<void(Setting&)>& change,
                    const std::vector<std::string>& words) {
  const Folder folder;
  train({.plan = plans()[1], .steps = 1, .optimizer = exec::OptimizerKind::Sgd}, folder.path());
  const Program program = program_of(plans()[1]);
  Setting setting(program);
  setting.training.optimizer.kind = exec::OptimizerKind::Sgd;
  const Checkpoint start = Checkpoint::open(folder.path());
  setting.training.start = &start;
  change(setting);
  expect_refusal(
      [&] { exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training, {.steps = 1}); },
      words);
}

TEST(Resuming, AnotherModelIsRefusedWithItsPlace) {
  expect_refused([](Setting& setting) { setting.model.layers[4].name = "other"; },
                 {"another model", "/layers/4/name"});
}

TEST(Resuming, AnOptimizerWhoseStateIsNotThereIsRefused) {
  expect_refused(
      [](Setting& setting) { setting.training.optimizer.kind = exec::OptimizerKind::AdamW; },
      {"trained with sgd", "adamw needs"});
}

/// A checkpoint of AdamW whose second array that is no weight says that it is of `parameter`, with
/// checksums that are right. SGD does without it.
void expect_refused_with_a_moment_of(const std::string& parameter,
                                     const std::vector<std::string>& words) {
  const Folder folder;
  train({.plan = plans()[1], .steps = 1}, folder.path());
  const fs::path manifest = exec::checkpoint_folder(folder.path(), 1) / exec::kManifestName;
  const Json document = parse_json(read_text(manifest.string()), "");
  auto [facts, parts, crc] = exec::read_checkpoint_manifest(JsonCursor(document, ""));
  std::vector<exec::StoredPiece>& pieces = parts[0].pieces;
  const auto moment = std::find_if(pieces.begin(), pieces.end(), [](const auto& piece) {
    return piece.slot != exec::kValueSlot;
  });
  ASSERT_NE(moment, pieces.end());
  const auto other = std::find_if(moment, pieces.end(), [&](const auto& piece) {
    return piece.slot == moment->slot && piece.total != moment->total;
  });
  ASSERT_NE(other, pieces.end());
  if (parameter.empty()) {
    std::swap(moment->parameter, other->parameter);
  } else {
    moment->parameter = parameter;
  }
  write_file(manifest, exec::sealed_text(facts, parts));
  const Program program = program_of(plans()[1]);
  Setting setting(program);
  setting.training.optimizer.kind = exec::OptimizerKind::Sgd;
  const Checkpoint start = Checkpoint::open(folder.path());
  setting.training.start = &start;
  expect_refusal(
      [&] { exec::cpu::run_on_cpu(program, costs_of(program, 1), setting.training, {.steps = 1}); },
      words);
}

TEST(Resuming, ArraysThatTheModelDoesNotHaveAreRefused) {
  expect_refused_with_a_moment_of("ghost", {"holds \"ghost\" (mean)", "does not have"});
}

TEST(Resuming, ArraysOfAnotherSizeThanTheModelsAreRefusedAlsoWhereNobodyReadsThem) {
  expect_refused_with_a_moment_of("", {"(mean) has ", " elements there and "});
}

TEST(Resuming, WhatDiffersAndIsNoFaultIsSaid) {
  const Folder folder;
  train({.plan = plans()[1], .steps = 1}, folder.path());
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  Setting setting(program);
  setting.training.seed = 8;
  setting.training.optimizer.kind = exec::OptimizerKind::Sgd;
  const Checkpoint start = Checkpoint::open(folder.path());
  const auto notes = exec::cpu::resume_notes(start, setting.training);
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_NE(notes[0].find("8 x 3, this plan has 4 x 3"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("seed 7, this plan has 8"), std::string::npos) << notes[1];
  EXPECT_NE(notes[2].find("adamw, this plan has sgd"), std::string::npos) << notes[2];
  setting.training.micro_batches = 12;
  setting.training.micro_batch_size = 2;
  const auto other_cut = exec::cpu::resume_notes(start, setting.training);
  EXPECT_NE(other_cut[0].find("8 x 3, this plan has 12 x 2: each step has the same samples"),
            std::string::npos)
      << other_cut[0];
}

}  // namespace checkpoint_test
}  // namespace pipewright::tests
