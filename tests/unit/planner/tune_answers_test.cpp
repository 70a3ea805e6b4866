// What tune says of a job: how it is costed, why nothing is possible, why not another
// configuration; and that it says the same on every machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/model/architecture_model.hpp"
#include "core/order/stages_by_rank.hpp"
#include "core/plan/profile_lengths.hpp"
#include "planner/configurations/costing.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/search.hpp"
#include "tests/support/expect_refusal.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright::planner {
namespace tune_answers_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Json transformer_job(const char* cluster, int devices) {
  return {{"schema", "pipewright.job/1"},
          {"model",
           {{"transformer",
             {{"hidden", 2048},
              {"layers", 24},
              {"heads", 16},
              {"vocabulary", 50304},
              {"sequence", 2048}}}}},
          {"cluster", {{"preset", cluster}, {"devices", devices}}},
          {"global_batch", 256}};
}

Job read(const Json& document) { return read_job(JsonCursor(document, "job.json")); }

Job preset_job(const char* model, const char* cluster, int devices, int batch) {
  Job job;
  job.architecture = architecture_preset(model);
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset(cluster, devices);
  job.global_batch = batch;
  return job;
}

SearchResult searched(const Job& job, SearchOptions options = {}) {
  options.synthesis = false;
  return search(job, nullptr, options);
}

TEST(Costing, ATransformerOnGpusHas16BitsUnlessSomebodySaysOtherwise) {
  Json document = transformer_job("dgx-a100", 16);
  const Job silent = read(document);
  EXPECT_TRUE(silent.assumes_16_bits);
  ASSERT_TRUE(estimated_architecture(silent));
  document["model"]["bytes_per_element"] = 2;
  const Job said = read(document);
  EXPECT_FALSE(said.assumes_16_bits);
  const SearchResult by_silence = searched(silent), by_word = searched(said);
  ASSERT_TRUE(by_silence.best);
  EXPECT_EQ(by_silence.best->predicted.step, by_word.best->predicted.step);
  EXPECT_EQ(describe(by_silence.ranked.front()), describe(by_word.ranked.front()));
  document["model"]["bytes_per_element"] = 4;
  EXPECT_FALSE(estimated_architecture(read(document)));
}

TEST(Costing, OnCpusWithAProfileAndForWhatTheEstimateDoesNotKnowItIsAsBefore) {
  EXPECT_EQ(read(transformer_job("local-cpu", 4)).model.bytes_per_element, 4);
  Json sgd = transformer_job("dgx-a100", 16);
  sgd["training"] = {{"optimizer", "sgd"}};
  EXPECT_EQ(read(sgd).model.bytes_per_element, 4);
  Json profiled = transformer_job("dgx-a100", 16);
  profiled["profile_path"] = "profile.json";
  EXPECT_EQ(read(profiled).model.bytes_per_element, 4);
  const Profile any;
  Job by_flag = read(transformer_job("dgx-a100", 16));
  EXPECT_EQ(settle_costing(by_flag, &any).way, "profile");
  EXPECT_EQ(by_flag.model.bytes_per_element, 4);
  Job strange = read(transformer_job("dgx-a100", 16));
  strange.cluster.device.model = "Some Accelerator";
  const Costing costing = settle_costing(strange, nullptr);
  EXPECT_EQ(costing.way, "operations");
  EXPECT_THAT(costing.why, HasSubstr("no rates of Some Accelerator"));
  EXPECT_NO_THROW(searched(strange));
  // A preset says what its numbers are.
  Json preset = transformer_job("dgx-a100", 16);
  preset["model"] = {{"preset", "gpt-tiny"}};
  EXPECT_EQ(read(preset).model.bytes_per_element, 4);
}

TEST(Costing, LengthsOfSamplesBecomeWhatTheyTakeByTheProfile) {
  const Profile profile = test::sample_profile();
  Job job = read(transformer_job("dgx-a100", 16));
  job.sample_lengths = {64, 16, 256};
  settle_costing(job, &profile);
  EXPECT_EQ(job.sample_scales,
            (std::vector<double>{1, length_scale(profile, 16), length_scale(profile, 256)}));
  EXPECT_EQ(test::refusal([&] { settle_costing(job, nullptr); }).pointer(), "/sample_lengths");
  job.sample_lengths[1] = 8;
  EXPECT_EQ(test::refusal([&] { settle_costing(job, &profile); }).pointer(), "/sample_lengths/1");
}

TEST(Costing, SaysWhichWayItTookWhyAndWhatWouldChangeIt) {
  Job silent = read(transformer_job("dgx-a100", 16));
  Costing costing = settle_costing(silent, nullptr);
  EXPECT_EQ(costing.way, "estimate");
  EXPECT_THAT(costing.why, HasSubstr("bytes_per_element is left out"));
  EXPECT_THAT(costing.otherwise, HasSubstr("\"bytes_per_element\": 4"));
  Json four = transformer_job("dgx-a100", 16);
  four["model"]["bytes_per_element"] = 4;
  Job explicit_four = read(four);
  costing = settle_costing(explicit_four, nullptr);
  EXPECT_EQ(costing.way, "operations");
  EXPECT_THAT(costing.why, AllOf(HasSubstr("its numbers have 4 bytes"),
                                 HasSubstr("where the job names them tp (mp_degree)")));
  EXPECT_THAT(costing.otherwise, HasSubstr("\"bytes_per_element\": 2"));
  Job cpu = read(transformer_job("local-cpu", 4));
  EXPECT_THAT(settle_costing(cpu, nullptr).why, HasSubstr("no GPUs"));
}

TEST(Costing, APlanOfEitherPrecisionIsAJobsThatSaysNone) {
  // Plans tuned before GPUs were taken to train in 16 bits still load.
  Json document = transformer_job("dgx-a100", 16);
  document["model"]["bytes_per_element"] = 4;
  const std::string path = testing::TempDir() + "tune_answers_plan.json";
  write_file(path, to_text(to_json(*searched(read(document)).best)));
  document["model"].erase("bytes_per_element");
  document["tuner_load_path"] = path;
  EXPECT_EQ(load_tuned_plan(read(document)).model.bytes_per_element, 4);
}

TEST(Nothing, BeginsWithTheReasonNearestToPossibleInNumbers) {
  const SearchResult none = searched(preset_job("gpt3-175b", "dgx-a100", 8, 64));
  ASSERT_FALSE(none.best);
  ASSERT_FALSE(none.nearest.empty());
  EXPECT_THAT(none.nearest.front(),
              AllOf(HasSubstr("of state alone"), HasSubstr("8 devices have 602 GiB"),
                    HasSubstr(" would do.")));
  // What is said to do was found: one node less is not enough, and so many are.
  const std::string& text = none.nearest.front();
  const int enough = std::stoi(text.substr(text.rfind("; ") + 2));
  EXPECT_TRUE(searched(preset_job("gpt3-175b", "dgx-a100", enough, 64)).best) << text;
  EXPECT_FALSE(searched(preset_job("gpt3-175b", "dgx-a100", enough - 8, 64)).best) << text;
}

TEST(Nothing, NamesTheConfigurationThatMissesLeastAndTheFieldThatIsInTheWay) {
  Job job = preset_job("llama3-8b", "dgx-h100", 8, 64);
  job.strategy.memory_limit = Bytes(std::int64_t{20} << 30);
  job.strategy.mp_degree = {"1"};
  job.strategy.pp_degree = {"1"};
  job.strategy.sharding_stage = {"0"};
  const SearchResult none = searched(job);
  ASSERT_FALSE(none.best);
  EXPECT_THAT(none.nearest.front(), StartsWith("memory: "));
  EXPECT_THAT(none.nearest, ::testing::Contains(HasSubstr("The nearest, ")));
  EXPECT_THAT(none.nearest, ::testing::Contains(StartsWith("mp_degree left open would do: ")));
}

TEST(Nothing, SaysWhatDoesNotDivideWhereARuleIsTheReason) {
  Job job = preset_job("llama3-8b", "dgx-h100", 16, 64);
  job.strategy.pp_degree = {"3"};
  const SearchResult none = searched(job);
  ASSERT_FALSE(none.best);
  EXPECT_THAT(none.nearest.front(), AllOf(HasSubstr("does not divide the devices"),
                                          HasSubstr("pp 3"), HasSubstr("16 devices")));
  EXPECT_THAT(none.nearest, ::testing::Contains(StartsWith("pp_degree left open would do")));
}

/// What is left out of a question is as in the best of that kind, which a search of a job with
/// these values finds.
TEST(ExplainOfKind, TheRestIsAsInTheBestThatHasWhatIsAsked) {
  const Job job = preset_job("llama3-70b", "dgx-h100", 64, 128);
  const SearchResult found = searched(job);
  const Candidate& best = found.ranked.front();
  struct Asked {
    const char* text;
    void (*fix)(Strategy&);
  };
  const Asked questions[] = {
      {"tp=8", [](Strategy& s) { s.mp_degree = {"8"}; }},
      {"pp=8,schedule=1f1b",
       [](Strategy& s) {
         s.pp_degree = {"8"};
         s.schedule_mode = {"1f1b"};
       }},
      {"dp=16", [](Strategy& s) { s.dp_degree = {"16"}; }},
      {"zero=3", [](Strategy& s) { s.sharding_stage = {"3"}; }},
      {"zero=0", [](Strategy& s) { s.sharding_stage = {"0"}; }},
      {"schedule=gpipe", [](Strategy& s) { s.schedule_mode = {"gpipe"}; }},
      {"recompute=full", [](Strategy& s) { s.recompute = {"full"}; }},
      {"micro_batch_size=2", [](Strategy& s) { s.micro_batch_size = {"2"}; }},
      {"vpp=4", [](Strategy& s) { s.vpp_degree = {"4"}; }},
  };
  for (const auto& [text, fix] : questions) {
    Job fixed = job;
    fix(fixed.strategy);
    const SearchResult of_kind = searched(fixed);
    ASSERT_TRUE(of_kind.best) << text;
    const Explanation why = explain(job, nullptr, 0, found, text);
    ASSERT_TRUE(why.candidate) << text << ": " << why.sentences.back();
    EXPECT_EQ(why.candidate->step, of_kind.ranked.front().step) << text;
    EXPECT_TRUE(why.is_possible) << text;
    const bool is_best = why.candidate->step == best.step;
    EXPECT_THAT(why.sentences.front(),
                StartsWith(is_best ? "Yes: it is the best" : "No: the best of "))
        << text;
  }
}

TEST(ExplainOfKind, WhatDoesNotDivideIsSaid) {
  const Job job = preset_job("llama3-8b", "dgx-h100", 16, 64);
  const Explanation why = explain(job, nullptr, 0, searched(job), "pp=3");
  EXPECT_FALSE(why.is_possible);
  EXPECT_THAT(why.sentences.front(), StartsWith("No: "));
  EXPECT_THAT(why.sentences[1],
              AllOf(HasSubstr("pp=3, which does not divide the 16 devices"), HasSubstr("dp=5")));
}

TEST(ExplainOfKind, WhatTheJobFixesOtherwiseIsSaid) {
  Job job = preset_job("llama3-8b", "dgx-h100", 16, 64);
  job.strategy.mp_degree = {"4", "8"};
  const Explanation why = explain(job, nullptr, 0, searched(job), "tp=2");
  ASSERT_TRUE(why.candidate);
  EXPECT_EQ(why.candidate->parallel.tensor, 2);
  EXPECT_THAT(why.sentences.front(), HasSubstr("mp_degree is 4, 8"));
}

TEST(ExplainOfKind, LayerByLayerThereIsNoTensorParallelism) {
  Json document = transformer_job("dgx-a100", 16);
  document["model"]["bytes_per_element"] = 4;
  const Job job = read(document);
  const Explanation why = explain(job, nullptr, 0, searched(job), "tp=2");
  EXPECT_FALSE(why.candidate);
  EXPECT_THAT(why.sentences.back(), HasSubstr("planned layer by layer"));
}

TEST(Budget, IsWorkAndNotTime) {
  const Job job = preset_job("llama3-70b", "dgx-h100", 64, 128);
  SearchOptions options;
  options.budget_seconds = 0.3;
  options.threads = 1;
  const SearchResult alone = search(job, nullptr, options);
  EXPECT_FALSE(alone.complete);
  ASSERT_TRUE(alone.best);
  for (const int threads : {2, 8}) {
    options.threads = threads;
    const SearchResult other = search(job, nullptr, options);
    EXPECT_EQ(other.evaluated, alone.evaluated);
    EXPECT_EQ(other.pruned, alone.pruned);
    EXPECT_EQ(to_text(to_json(*other.best)), to_text(to_json(*alone.best)));
  }
}

/// Of many replicas one is simulated for the plan; what it says is what all of them take.
TEST(LargePlan, IsPredictedAsAllItsReplicasTogether) {
  Job job = preset_job("llama3-8b", "dgx-a100", 2048, 4096);
  job.strategy.pp_degree = {"4"};
  job.strategy.mp_degree = {"1"};
  job.strategy.schedule_mode = {"interleaved"};
  job.strategy.vpp_degree = {"8"};
  job.strategy.micro_batch_size = {"1"};
  job.strategy.sharding_stage = {"1"};
  const SearchResult found = searched(job);
  ASSERT_TRUE(found.best);
  const Plan& plan = *found.best;
  ASSERT_GT(3 * static_cast<int>(plan.stages.size()) * plan.all_micro_batches(), 100'000);
  Plan again = plan;
  ASSERT_EQ(fill_prediction(again).verdict, Verdict::Ok);
  EXPECT_EQ(to_text(to_json(again)), to_text(to_json(plan)));
}

TEST(StagesByRank, AreThoseOfThePlacement) {
  const std::vector<std::vector<RankId>> rank_of{
      {RankId(0), RankId(2)}, {RankId(1), RankId(1)}, {RankId(0), RankId(0)}};
  for (const Placement& placement : {Placement::loop(3, 2), Placement::v_shape(4),
                                     Placement::explicit_micro_batches(rank_of, 4)}) {
    const auto stages = stages_by_rank(placement, 2);
    for (int r = 0; r < placement.ranks(); ++r)
      EXPECT_EQ(stages[static_cast<std::size_t>(r)], placement.stages_of(RankId(r)));
  }
}

}  // namespace tune_answers_test
}  // namespace pipewright::planner
