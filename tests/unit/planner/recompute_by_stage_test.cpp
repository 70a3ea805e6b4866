// Recompute stage by stage, from the job's word to the plan, its file and what is said of it.
#include "planner/branches/recompute_by_stage.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/model/architecture_model.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/configurations/requested_recompute.hpp"
#include "planner/export/export.hpp"
#include "planner/plans/difference.hpp"
#include "planner/search/explanation.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {
namespace recompute_by_stage_test {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using Kind = RecomputeSpec::Kind;

/// Planned layer by layer.
Job layered_job() {
  Job job;
  job.model = model_preset("gpt-tiny");
  job.cluster = cluster_preset("dgx-a100", 8);
  job.global_batch = 16;
  job.strategy.pp_degree = {"3"};
  job.strategy.micro_batch_size = {"1"};
  job.strategy.schedule_mode = {"1f1b"};
  return job;
}

Candidate best_with(Job job, Choice recompute, Bytes limit = {}) {
  job.strategy.recompute = std::move(recompute);
  job.strategy.memory_limit = limit;
  return search(job).ranked.at(0);
}

/// Too little for `none` and enough for `full`.
Bytes limit_between(const Job& job) {
  const auto peak = [&](const char* kind) { return best_with(job, {kind}).peak_bytes.value; };
  return Bytes((peak("none") + peak("full")) / 2);
}

/// GPT-3 175B on 64 A100 of 80 GB by 1F1B: without recompute the first ranks have no room, and the
/// last ones do.
Job gpt3_job() {
  Job job;
  job.architecture = architecture_preset("gpt3-175b");
  job.model = model_of(*job.architecture);
  job.cluster = cluster_preset("dgx-a100", 64);
  job.global_batch = 96;
  job.strategy.framework = megatron_lm();
  job.strategy.mp_degree = {"4"};
  job.strategy.pp_degree = {"16"};
  job.strategy.micro_batch_size = {"1"};
  job.strategy.schedule_mode = {"1f1b"};
  job.strategy.use_sequence_parallel = {"true"};
  return job;
}

TEST(RecomputeOfStages, AreSaidInShort) {
  constexpr auto kNone = LayerRecompute::None, kPart = LayerRecompute::Attention,
                 kWhole = LayerRecompute::Whole;
  const auto text = [](const std::vector<LayerRecompute>& of_stage) {
    return describe_recompute(of_stage);
  };
  EXPECT_EQ(text({kWhole, kWhole, kWhole, kNone}), "full on 0-2, none on 3");
  EXPECT_EQ(text({kNone, kPart, kNone, kWhole}), "full on 3, selective on 1, none on 0, 2");
  EXPECT_EQ(text({kNone}), "none on 0");
}

TEST(RecomputeOfStages, MakeTheShortestSpecOfTheirLayers) {
  constexpr auto kNone = LayerRecompute::None, kPart = LayerRecompute::Attention,
                 kWhole = LayerRecompute::Whole;
  const auto text = [](const std::vector<LayerRecompute>& of_layer) {
    return to_json(recompute_spec(of_layer)).dump();
  };
  EXPECT_EQ(text({kNone, kNone}), "\"none\"");
  EXPECT_EQ(text({kPart, kPart}), "\"selective\"");
  EXPECT_EQ(text({kWhole, kWhole}), "\"full\"");
  EXPECT_EQ(text({kWhole, kNone, kWhole}), "[0,2]");
  EXPECT_EQ(text({kWhole, kPart, kNone}), R"({"full":[0],"selective":[1]})");
}

TEST(RecomputeByStage, AJobThatIsPlannedLayerByLayerDoesWhatItsTrainingSaysUnlessAsked) {
  Job job = layered_job();
  EXPECT_TRUE(layered_recompute(job).fixed_by_training);
  job.training.recompute = {Kind::Listed, {1}};
  const SearchResult listed = search(job);
  ASSERT_TRUE(listed.best);
  EXPECT_EQ(listed.best->training.recompute, job.training.recompute);
  job.training.recompute = {};
  job.strategy.opens_recompute = true;
  EXPECT_EQ(layered_recompute(job).by_stage, ParallelSpace::ByStage::Too);
  EXPECT_EQ(search(job).configurations, 4 * search(layered_job()).configurations);
  job.training.recompute.kind = Kind::Full;
  EXPECT_TRUE(layered_recompute(job).fixed_by_training);
  job.training.recompute = {};
  job.strategy.recompute = {"full"};
  EXPECT_EQ(search(job).best->training.recompute.kind, Kind::Full);
}

TEST(RecomputeByStage, IsFasterThanAnyRecomputeForAllWhereSomeRanksHaveRoom) {
  const Job job = layered_job();
  const Bytes limit = limit_between(job);
  const Candidate chosen = best_with(job, {"by_stage"}, limit),
                  full = best_with(job, {"full"}, limit);
  EXPECT_LT(chosen.step, full.step);
  EXPECT_LE(chosen.peak_bytes, limit);
  EXPECT_EQ(best_with(job, {"none", "selective", "full", "by_stage"}, limit).step, chosen.step);
  EXPECT_THAT(describe(chosen), HasSubstr("recompute by stage: "));
}

TEST(RecomputeByStage, IsCountedWithTheOthersWhereAllStagesDoTheSame) {
  Job job = layered_job();
  job.strategy.recompute = {"none", "by_stage"};
  const SearchResult roomy = search(job);
  EXPECT_THAT(roomy.pruned, Contains(Key(LeftOut::AlikeRecompute)));
  for (const Candidate& row : roomy.ranked) EXPECT_FALSE(row.parallel.recompute.by_stage);
  job.strategy.recompute = {"by_stage"};  // nothing else has it
  const SearchResult alone = search(job);
  EXPECT_THAT(alone.pruned, Not(Contains(Key(LeftOut::AlikeRecompute))));
  ASSERT_TRUE(alone.best);
  EXPECT_EQ(alone.best->training.recompute.kind, Kind::None);
  EXPECT_EQ(alone.best->predicted.step, roomy.best->predicted.step);
}

TEST(RecomputeByStage, IsNamedWhereNothingFitsAndTheTrainingFixesIt) {
  Job job = layered_job();
  job.strategy.memory_limit = limit_between(job);
  const SearchResult fixed = search(job);
  EXPECT_FALSE(fixed.best);
  EXPECT_THAT(fixed.examples.at(LeftOut::OverMemory), HasSubstr("\"auto\" in strategy"));
  job.strategy.opens_recompute = true;
  EXPECT_TRUE(search(job).best);
}

TEST(RecomputeByStage, LeavesOutSchedulesWhoseOrderFollowsFromTheCosts) {
  Job job = layered_job();
  job.strategy.schedule_mode = {"zb-1p"};
  job.strategy.recompute = {"by_stage"};
  job.strategy.dp_degree = {"1"};
  const SearchResult result = search(job);
  EXPECT_FALSE(result.best);
  EXPECT_EQ(result.pruned.at(LeftOut::OrderByCosts), 2);
}

TEST(RecomputeByStage, OfGpt3On64DevicesOnlyEarlyStagesNeedIt) {
  Job job = gpt3_job();
  const SearchResult result = search(job);
  ASSERT_TRUE(result.best);
  const Candidate& best = result.ranked.front();
  ASSERT_TRUE(best.parallel.recompute.by_stage);
  const auto& kinds = best.parallel.recompute.of_stage;
  EXPECT_TRUE(std::is_sorted(kinds.rbegin(), kinds.rend()));
  EXPECT_EQ(kinds.front(), LayerRecompute::Attention);
  EXPECT_EQ(kinds.back(), LayerRecompute::None);
  EXPECT_LT(best.step, best_with(job, {"none", "selective", "full"}).step);
  const Plan plan = read_plan(JsonCursor(to_json(*result.best), "plan.json"));
  EXPECT_EQ(plan.training.recompute, result.best->training.recompute);
  EXPECT_EQ(pipewright::to_text(to_json(plan)), pipewright::to_text(to_json(*result.best)));
  const ExportedPlan exported = export_megatron(plan);
  EXPECT_THAT(exported.refusals, Contains(HasSubstr("recomputes all blocks alike")));
  job.strategy.recompute = {"full"};
  const auto differences = plan_differences(plan, *search(job).best);
  EXPECT_THAT(differences,
              Contains("recompute by stage: " + describe_recompute(kinds) + ", then \"full\""));
}

TEST(RecomputeByStage, AJournalHasTheChoice) {
  const Job job = gpt3_job();
  SearchJournal journal;
  SearchOptions options;
  options.journal = &journal;
  journal.add = [&](const std::string& configuration, const std::string& record) {
    journal.known[configuration] = record;
  };
  const SearchResult first = search(job, nullptr, options);
  int added = 0;
  journal.add = [&](const std::string&, const std::string&) { ++added; };
  const SearchResult second = search(job, nullptr, options);
  EXPECT_EQ(added, 0);
  EXPECT_EQ(pipewright::to_text(to_json(*second.best)), pipewright::to_text(to_json(*first.best)));
}

TEST(RecomputeByStage, CanBeExplained) {
  const Job job = gpt3_job();
  const SearchResult found = search(job);
  const auto explained = [&](const std::string& text) {
    return explain(job, nullptr, 0, found, text);
  };
  const auto& kinds = found.ranked.front().parallel.recompute.of_stage;
  const Explanation by_stage = explained("recompute=by-stage");
  EXPECT_TRUE(by_stage.is_possible);
  EXPECT_THAT(by_stage.sentences,
              Contains("Stages compute again: " + describe_recompute(kinds) + "."));
  EXPECT_THAT(by_stage.sentences, Contains("It is number 1 of the table."));
  std::string list;
  for (const LayerRecompute kind : kinds)
    list += (list.empty() ? "" : "+") + std::string(to_string(kind));
  EXPECT_EQ(explained("recompute=" + list).candidate->step, found.ranked.front().step);
  EXPECT_FALSE(explained("recompute=none").is_possible);
  EXPECT_THAT(explained("recompute=full+none").sentences,
              Contains("It names 2 recomputes, and has 16 stages."));
  EXPECT_THAT(explained("recompute=by-stage,schedule=zb-1p").sentences,
              Contains(HasSubstr("follows from the costs")));
  EXPECT_THROW(explained("recompute=full+some"), InputError);
  Job layered = layered_job();
  EXPECT_THAT(explain(layered, nullptr, 0, search(layered), "recompute=full").sentences,
              Contains(HasSubstr("training.recompute says")));
}

}  // namespace recompute_by_stage_test
}  // namespace pipewright::planner
