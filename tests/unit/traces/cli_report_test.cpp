// pipewright report, and the page of analyze: what they take, what they write, what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {
namespace cli_report_test {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kOrder = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

/// A rank of a job of two, as PyTorch's profiler writes it: two slices, and the receive before one.
/// `late_us`: how far its clock is behind.
std::string kineto_rank(int rank, int late_us) {
  const auto at = [&](int us) { return std::to_string(1'000'000 + us - late_us); };
  const auto slice = [&](const std::string& name, int us, int length) {
    return R"({"ph": "X", "cat": "user_annotation", "name": ")" + name +
           R"(", "pid": 7, "tid": 1, "ts": )" + at(us) + R"(, "dur": )" + std::to_string(length) +
           "}";
  };
  std::string events = rank == 0
                           ? slice("PP:0F0", 0, 100) + "," + slice("PP:0SEND_F0", 100, 5) + "," +
                                 slice("PP:0RECV_B0", 106, 204) + "," + slice("PP:0B0", 310, 200)
                           : slice("PP:1RECV_F0", 0, 110) + "," + slice("PP:1F0", 110, 90) + "," +
                                 slice("PP:1B0", 200, 100) + "," + slice("PP:1SEND_B0", 300, 5);
  return R"({"distributedInfo": {"rank": )" + std::to_string(rank) +
         R"(, "world_size": 2}, "baseTimeNanoseconds": 0, "traceEvents": [)" + events + "]}";
}

std::string text_of(const Folder& folder, const std::string& name) {
  std::ifstream file(folder.path() / name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What stands in the element of that page.
json facts_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"facts\">";
  const std::size_t at = page.find(open) + open.size();
  return json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST(Report, OfOneStepIsThePageOfTheCommandThatMakesIt) {
  const Folder folder;
  folder.write("order.csv", kOrder);
  const std::string costs = " --cost F=1ms,B=2ms,comm=10us ";
  const auto report = pipewright("report order.csv" + costs + "-o a.html --json", folder);
  ASSERT_EQ(report.status, 0) << report.err;
  EXPECT_EQ(pipewright("simulate order.csv" + costs + "--html b.html -q", folder).status, 0);
  EXPECT_EQ(text_of(folder, "a.html"), text_of(folder, "b.html"));
  const json steps = json::parse(report.out).at("steps");
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(
      steps[0].at("makespan_ns"),
      json::parse(pipewright("simulate order.csv --json" + costs, folder).out).at("makespan_ns"));

  EXPECT_EQ(pipewright("simulate order.csv" + costs + "--trace t.json -q", folder).status, 0);
  EXPECT_EQ(pipewright("report t.json -q -o a.html", folder).status, 0);
  EXPECT_EQ(pipewright("analyze t.json -q --html b.html", folder).status, 0);
  EXPECT_EQ(text_of(folder, "a.html"), text_of(folder, "b.html"));
}

TEST(Report, OfTwoStepsAlignsThemWhateverTheyAre) {
  const Folder folder;
  folder.write("order.csv", kOrder);
  const std::string costs = " --cost F=1ms,B=2ms ";
  EXPECT_EQ(pipewright("simulate order.csv" + costs + "--trace a.json -q", folder).status, 0);
  EXPECT_EQ(pipewright("simulate order.csv --cost F=1ms,B=3ms --trace b.json -q", folder).status,
            0);
  const auto traces = pipewright("report a.json b.json -o two.html --json", folder);
  ASSERT_EQ(traces.status, 0) << traces.err;
  EXPECT_EQ(json::parse(traces.out).at("steps").size(), 2U);
  EXPECT_EQ(pipewright("compare a.json b.json -q --html compared.html", folder).status, 0);
  EXPECT_EQ(text_of(folder, "two.html"), text_of(folder, "compared.html"));

  // An order beside the trace of a slower run of it.
  const auto mixed = pipewright("report order.csv b.json" + costs + "-o mixed.html --json", folder);
  ASSERT_EQ(mixed.status, 0) << mixed.err;
  const std::string page = text_of(folder, "mixed.html");
  EXPECT_EQ(facts_of(page).at("timelines").size(), 2U);
  EXPECT_THAT(
      page,
      HasSubstr("<tr><td>B</td><td>8.00 ms</td><td>12.0 ms</td><td>+50.0 %</td><td>4</td></tr>"));
}

TEST(Report, ShowsWhereAnOrderStandsAndSaysNo) {
  const Folder folder;
  folder.write("stuck.csv", "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  const auto report = pipewright("report stuck.csv --issue inline -o page.html", folder);
  EXPECT_EQ(report.status, 1) << report.err;
  EXPECT_THAT(report.out, HasSubstr("DEADLOCK"));
  EXPECT_THAT(text_of(folder, "page.html"), HasSubstr("<pre>DEADLOCK"));
}

/// Unpacked by tar, the files are what they were; the manifest has what analyze says of the clocks.
TEST(MergedTraces, AreTheFilesAndHowTheirClocksRelate) {
  const Folder folder;
  const std::string ranks[] = {kineto_rank(0, 0), kineto_rank(1, 300)};
  folder.write("a.json", ranks[1]);
  folder.write("b.json", ranks[0]);
  const auto run = pipewright("analyze a.json b.json --merged job.tar --json", folder);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("job.tar; Perfetto opens it"));
  ASSERT_EQ(std::system(("cd " + folder.path().string() + " && tar -xf job.tar").c_str()), 0);
  for (const int rank : {0, 1})
    EXPECT_EQ(text_of(folder, "rank" + std::to_string(rank) + ".json"), ranks[rank]);
  const std::string manifest = text_of(folder, "perfetto_manifest.json");
  EXPECT_THAT(manifest, StartsWith("{\n \"perfetto_manifest\""));
  const json files = json::parse(manifest).at("perfetto_manifest").at("files");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_FALSE(files[0].contains("clocks"));
  EXPECT_EQ(files[1].at("clocks").at("sync_to").at("file"), files[0].at("path"));
  const std::int64_t behind = json::parse(run.out).at("clocks")[1].at("shift_ns");
  EXPECT_GT(behind, 100'000);
  const bool first_is_0 = files[0].at("path") == "rank0.json";
  EXPECT_EQ(files[first_is_0 ? 1 : 0].at("machine").at("name"), "rank 1");
  EXPECT_EQ(files[1].at("clocks").at("offset_ns"), first_is_0 ? behind : -behind);
}

TEST(MergedTraces, RefusesWhatIsNoFileOfEachRank) {
  const Folder folder;
  folder.write("order.csv", kOrder);
  folder.write("rank0.json", kineto_rank(0, 0));
  ASSERT_EQ(pipewright("simulate order.csv --cost F=1ms --trace own.json -q", folder).status, 0);
  const auto refused = [&](const std::string& what) {
    const auto run = pipewright("analyze " + what + " --merged job.tar", folder);
    EXPECT_EQ(run.status, 2) << what;
    return run.err;
  };
  EXPECT_THAT(refused("own.json"), HasSubstr("own.json: has several ranks in it"));
  EXPECT_THAT(refused("rank0.json"), HasSubstr("rank0.json: is alone"));
  EXPECT_THAT(refused("order.csv --cost F=1ms"), HasSubstr("--merged"));
}

TEST(Report, RefusesInOneSentenceWhatMakesNoPage) {
  const Folder folder;
  folder.write("order.csv", kOrder);
  folder.write("three.csv", "0F0,0B0\n1F0,1B0\n2F0,2B0\n");
  folder.write("other.csv", "0F7,0B7\n1F7,1B7\n");
  folder.write("broken.json", "{\"traceEvents\": [}");
  folder.write("thing.json", "{\"schema\": \"pipewright.profile/1\"}");
  const auto refused = [&](const std::string& words, const std::string& why) {
    const auto done = pipewright("report " + words, folder);
    EXPECT_EQ(done.status, 2) << words;
    EXPECT_THAT(done.err, HasSubstr(why)) << words;
    EXPECT_EQ(done.out, "") << words;
  };
  refused("order.csv", "--out");
  refused("-o r.html", "nothing to read");
  refused("nowhere.csv -o r.html", "nowhere.csv");
  refused("broken.json -o r.html", "broken.json");
  refused("thing.json -o r.html", "thing.json");
  refused("order.csv order.csv order.csv -o r.html", "is one file too many");
  refused("order.csv three.csv -o r.html", "shows ranks 0, 1, 2, and");
  refused("order.csv --step 1 -o r.html", "--step belongs to traces");
  EXPECT_THAT(folder.names(), Not(testing::Contains("r.html")));
}

constexpr const char* kRun = R"({"schema": "pipewright.result/1", "outcome": "finished",
  "steps": [{"loss": 4.0, "step_ns": 5}, {"loss": null, "step_ns": 5}, {"loss": 1.5, "step_ns": 5}],
  "verify": {"numerics": "exact", "max_ulp": 0, "norm_rel": 0.0, "bitwise": true,
             "parameters_bitwise": true}, "first_step": 10})";

TEST(Report, AddsTheLossesAndTheVerificationOfARun) {
  const Folder folder;
  folder.write("order.csv", kOrder);
  folder.write("run.json", kRun);
  for (const std::string words :
       {"report order.csv run.json -o page.html -q", "report run.json -o page.html -q"}) {
    const auto done = pipewright(words, folder);
    ASSERT_EQ(done.status, 0) << words << done.err;
    const std::string page = text_of(folder, "page.html");
    EXPECT_THAT(page, HasSubstr("<figcaption>Loss, 4.0000 to 1.5000</figcaption>"));
    EXPECT_THAT(page, HasSubstr(">step 11</text>"));
    EXPECT_THAT(page, HasSubstr("<p class=\"passed\">✓ the gradients of step 11 agree"));
    EXPECT_EQ(facts_of(page).at("timelines").size(), words.find("order") == words.npos ? 0U : 1U);
  }
  std::string differs = kRun;
  differs.replace(differs.find("\"bitwise\": true"), 15, "\"bitwise\": false");
  folder.write("differs.json", differs);
  EXPECT_EQ(pipewright("report differs.json -o page.html -q", folder).status, 0);
  EXPECT_THAT(text_of(folder, "page.html"),
              HasSubstr("<p class=\"failed\">✗ the gradients of step 11 DIFFER"));
  folder.write("other.json", R"({"schema": "pipewright.result/1", "devices": 4})");
  const auto other = pipewright("report other.json -o r.html", folder);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("is a result of neither run nor tune"));
}

TEST(Analyze, SaysWhatIdleTimeComesFromInTheEnd) {
  // Stage 1 takes 3 ms where the others take 1: ranks 0 and 2 are idle for it.
  const Folder folder;
  const auto done = pipewright(
      "analyze --schedule gpipe --pp 3 --micro-batches 4 --cost F=1ms:3ms:1ms,B=1ms:3ms:1ms --json",
      folder);
  ASSERT_EQ(done.status, 0) << done.err;
  const json result = json::parse(done.out);
  std::int64_t idle = 0, divided = 0;
  for (const auto& [cause, ns] : result.at("bubbles").items()) idle += ns.get<std::int64_t>();
  for (const auto& [cause, ns] : result.at("roots").items()) divided += ns.get<std::int64_t>();
  EXPECT_EQ(divided, idle);
  EXPECT_EQ(result.at("held_up_by").at(0).at("rank"), 1);
  EXPECT_GT(result.at("held_up_by").at(0).at("imbalance_ns"), 0);
  EXPECT_EQ(result.at("ranks").at(0).at("roots").at("fill_ns"), 0);
  const auto text = pipewright(
      "analyze --schedule gpipe --pp 3 --micro-batches 4 --cost F=1ms:3ms:1ms,B=1ms:3ms:1ms",
      folder);
  EXPECT_THAT(text.out, HasSubstr("what the idle time comes from in the end:"));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

/// Ranks 1 and 5 of eight: the others are replicas, or parts of the same layers.
TEST(Analyze, APipelineOfAJobWithMoreRanksHasAnOrder) {
  const Folder folder;
  for (const auto& [rank, number] : {std::pair(0, 1), std::pair(1, 5)}) {
    std::string text = replaced(kineto_rank(rank, 0), R"("world_size": 2)", R"("world_size": 8)");
    text = replaced(text, R"("rank": )" + std::to_string(rank),
                    R"("rank": )" + std::to_string(number));
    folder.write("rank" + std::to_string(number) + ".json", text);
  }
  const auto both = pipewright("analyze rank5.json rank1.json -o order.csv --what-if", folder);
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("traces of 2 of 8 ranks: one pipeline, from its first stage"));
  const auto order = shell("cat order.csv", folder);
  EXPECT_EQ(order.out, "0F0,0B0\n1F0,1B0\n");
  // The first stage alone sends what nobody takes.
  const auto half = pipewright("analyze rank1.json -o order.csv", folder);
  EXPECT_EQ(half.status, 2);
  EXPECT_THAT(half.err, HasSubstr("needs the traces of all ranks; these are 1 of 8"));
}

TEST(Report, TakesTheTracesOfSeveralRanksAsOneStepWithTheirClocksSetRight) {
  const Folder folder;
  folder.write("rank0.json", kineto_rank(0, 0));
  folder.write("rank1.json", kineto_rank(1, 3000));
  for (const std::string words : {"report rank0.json rank1.json -o page.html --json",
                                  "report rank1.json rank0.json -o page.html --json",
                                  "analyze rank0.json rank1.json --html page.html --json"}) {
    const auto done = pipewright(words, folder);
    ASSERT_EQ(done.status, 0) << words << done.err;
    const std::string page = text_of(folder, "page.html");
    EXPECT_EQ(facts_of(page).at("timelines").size(), 1U) << words;
    EXPECT_EQ(facts_of(page).at("timelines")[0].at("rank_numbers"), json({0, 1}));
    EXPECT_THAT(page, HasSubstr("<h2>Clocks</h2>"));
    EXPECT_THAT(page, HasSubstr("messages ended before they began, by up to"));
    EXPECT_THAT(page, HasSubstr("<h2>Bubbles by cause</h2>"));
    EXPECT_THAT(page, HasSubstr("<h2>Idle time by root</h2>"));
  }
  // Of one of the ranks alone, by its own number.
  const auto alone = pipewright("report rank1.json -o page.html --json", folder);
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(facts_of(text_of(folder, "page.html")).at("timelines")[0].at("rank_numbers"),
            json({1}));
}

}  // namespace cli_report_test
}  // namespace pipewright::test
