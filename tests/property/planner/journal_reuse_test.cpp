// One journal for jobs that differ in a value: each search says what it says without a journal, and
// what the change leaves as it was is not simulated again.
#include <gtest/gtest.h>

#include "core/model/architecture_model.hpp"
#include "planner/search/search.hpp"
#include "planner/search/search_json.hpp"
#include "tests/support/draw.hpp"
#include "tests/support/search_checks.hpp"

namespace pipewright::planner {
namespace journal_reuse_test {

using test::Draw;

Job layered_job(Draw& random) {
  Job job;
  job.model = model_preset(random.one_of("gpt-tiny", "llama-tiny", "mixtral-tiny"));
  job.cluster = cluster_preset(random.one_of("dgx-a100", "dgx-h100"), 8);
  job.cluster.device.memory = Bytes(random.one_of(1, 4, 64) << 20);
  job.strategy.schedule_mode = {"1f1b", "interleaved", "zb-1p"};
  job.strategy.pp_degree = {"2", "3", "4"};
  job.strategy.recompute = {"none", "by_stage"};
  return job;
}

Job estimated_job(Draw& random) {
  const int heads = random.one_of(8, 16);
  Architecture model = gpt_architecture("gpt", 64 * heads, random.one_of(6, 8), heads, 32000, 1024);
  model.tied_head = random.coin();
  if (random.coin())
    model.experts = {.count = 8, .chosen = 2, .ffn = model.ffn / 2, .dense_blocks = 1};
  Job job;
  job.architecture = model;
  job.model = model_of(model);
  job.cluster = cluster_preset(random.one_of("dgx-a100", "dgx-h100"), 8);
  if (random.coin()) {  // ports to cross with few devices
    job.cluster.nodes = 4;
    job.cluster.devices_per_node = 2;
  }
  job.cluster.device.memory = Bytes(job.cluster.device.memory.value / random.one_of(4, 16, 40));
  Strategy& strategy = job.strategy;
  strategy.schedule_mode = {"1f1b", "dualpipev", "zb-2p", "interleaved"};
  strategy.mp_degree = {"1", "2"};
  strategy.pp_degree = {"2", "4"};
  strategy.recompute = {"none", "full", "by_stage"};
  strategy.sharding_stage = {"0", "1"};
  return job;
}

Job first_job(std::uint32_t seed) {
  Draw random(seed);
  Job job = seed % 2 == 0 ? layered_job(random) : estimated_job(random);
  job.global_batch = 16;
  job.strategy.micro_batch_size = {"1", "2"};
  return job;
}

/// Changes one value.
void change(Job& job, Draw& random) {
  Strategy& strategy = job.strategy;
  const auto toggle = [&](Choice& choice, const std::string& value) {
    const auto found = std::find(choice.begin(), choice.end(), value);
    found == choice.end() ? choice.push_back(value) : void(choice.erase(found));
    if (choice.empty()) choice = {value};
  };
  switch (random.below(12)) {
    case 0:
      job.global_batch = random.one_of(8, 16, 32);
      return;
    case 1:
      return toggle(strategy.schedule_mode, random.one_of("1f1b", "gpipe", "dualpipev"));
    case 2:
      return toggle(strategy.schedule_mode, random.one_of("zb-h1", "v-half", "interleaved"));
    case 3:
      strategy.memory_limit = Bytes(job.cluster.device.memory.value * random.one_of(1, 2, 3) / 3);
      return;
    case 4:
      job.cluster.across.bytes_per_second *= 2;
      return;
    case 5:
      job.cluster.inside.latency += Nanoseconds(500);
      return;
    case 6:
      job.cluster.device.flops *= 1.25;
      return;
    case 7:
      job.training.clip_grad_norm = job.training.clip_grad_norm > 0 ? 0 : 1;
      return;
    case 8:
      return toggle(strategy.recompute, random.one_of("none", "by_stage"));
    case 9:
      strategy.policy = comm_policy_preset(random.one_of("ideal", "torch", "nccl-one-stream"));
      return;
    case 10:
      return toggle(strategy.pp_degree, random.one_of("2", "4"));
    default:
      strategy.overlap_grad_reduce = !strategy.overlap_grad_reduce;
      return;
  }
}

/// All that a search says.
std::string said(const SearchResult& result) {
  Json fields = search_fields(result);
  fields.erase("elapsed_ns");
  std::string text = fields.dump();
  for (const Candidate& row : result.ranked) {
    text += "\n" + describe(row) + " " + std::to_string(row.state_bytes.value);
    for (const StagePlan& stage : row.stages) text += " " + std::to_string(stage.end_layer);
  }
  return text + (result.best ? to_json(*result.best).dump() : "");
}

TEST(JournalReuse, AJobThatDiffersInAValueIsSearchedAsWithoutAJournal) {
  std::size_t simulated = 0, of_all = 0, chains_that_reuse = 0;
  for (std::uint32_t seed = 0; seed < 16; ++seed) {
    Draw random(seed + 1000);
    Job job = first_job(seed);
    SearchJournal journal;
    std::size_t added = 0, alone = 0;
    journal.add = [&](const std::string& configuration, const std::string& record) {
      journal.known[configuration] = record;
      ++added;
    };
    for (int changes = 0; changes < 7; ++changes) {
      if (changes > 0) change(job, random);
      SCOPED_TRACE(std::to_string(seed) + ", change " + std::to_string(changes));
      SearchOptions options = test::search_options(8, random.coin());
      SearchJournal fresh;
      fresh.add = [&](const std::string&, const std::string&) { ++alone; };
      options.synthesis = random.below(4) == 0;
      options.front = random.below(3) == 0;
      const SearchResult without = search(job, nullptr, options);
      options.journal = &fresh;
      EXPECT_EQ(said(search(job, nullptr, options)), said(without));
      options.journal = &journal;
      ASSERT_EQ(said(search(job, nullptr, options)), said(without));
    }
    simulated += added;
    of_all += alone;
    chains_that_reuse += added < alone ? 1 : 0;
  }
  EXPECT_GT(chains_that_reuse, 10U);
  EXPECT_LT(simulated, of_all / 10 * 7);
  RecordProperty("simulated", std::to_string(simulated) + " of " + std::to_string(of_all));
}

}  // namespace journal_reuse_test
}  // namespace pipewright::planner
