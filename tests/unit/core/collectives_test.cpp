// Prices of collectives: closed forms, the fit, the readers of measured rows, the cluster's
// section.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "core/cluster/collectives.hpp"
#include "core/costs/collective_fit.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace collectives_test {

using test::refusal;

constexpr ActionKind kKinds[] = {ActionKind::AllReduce, ActionKind::AllGather,
                                 ActionKind::ReduceScatter, ActionKind::AllToAll,
                                 ActionKind::Broadcast};

CollectiveModel some_model() {
  return {.launch_ns = 5000,
          .step_ns = 1800,
          .part_ns_per_byte = 0.4,
          .bulk_ns = 42000,
          .bytes_per_second = 2e11,
          .across_step_ns = 9000,
          .across_bytes_per_second = 1e11,
          .source = "a test"};
}

std::int64_t ns(ActionKind kind, const CollectiveGroup& group, std::int64_t bytes) {
  return price_of(some_model(), kind, group, bytes).time.value;
}

TEST(CollectivePrice, OneMemberIsFree) {
  for (const ActionKind kind : kKinds) EXPECT_EQ(ns(kind, {1, 1, 1}, 1 << 20), 0);
}

TEST(CollectivePrice, AnEmptyAllReducePaysItsLaunchAndTheStepsOfARing) {
  for (const int n : {2, 4, 8})
    EXPECT_EQ(ns(ActionKind::AllReduce, {n, 1, n}, 0), 5000 + 2 * (n - 1) * 1800);
}

TEST(CollectivePrice, LargeOnesAreAsFastAsALink) {
  const std::int64_t bytes = std::int64_t{1} << 36;
  for (const int n : {2, 3, 8}) {
    const double alone = 2.0 * (n - 1) / n * static_cast<double>(bytes) / 200;
    EXPECT_NEAR(static_cast<double>(ns(ActionKind::AllReduce, {n, 1, n}, bytes)), alone,
                alone * 1e-3);
    EXPECT_NEAR(static_cast<double>(ns(ActionKind::AllGather, {n, 1, n}, bytes)), alone / 2,
                alone * 1e-3);
  }
}

TEST(CollectivePrice, TheProtocolChangesWhereBothCostTheSame) {
  const std::int64_t at = 42000 * 10 / 4 * 2;  // two members, 0.4 ns a byte of the part
  const auto protocol = [](std::int64_t bytes) {
    return price_of(some_model(), ActionKind::AllReduce, {2, 1, 2}, bytes).protocol;
  };
  EXPECT_EQ(protocol(at - 8), CollectiveProtocol::LowLatency);
  EXPECT_EQ(protocol(at + 8), CollectiveProtocol::Bulk);
  EXPECT_LE(
      ns(ActionKind::AllReduce, {2, 1, 2}, at + 8) - ns(ActionKind::AllReduce, {2, 1, 2}, at - 8),
      16);
}

TEST(CollectivePrice, NeverFallsWithTheBytes) {
  const CollectiveGroup groups[] = {{2, 1, 2}, {8, 1, 8}, {16, 2, 8}, {12, 2, 8}, {4, 4, 1}};
  for (const ActionKind kind : kKinds) {
    for (const CollectiveGroup& group : groups) {
      std::int64_t before = 0;
      for (std::int64_t bytes = 0; bytes < std::int64_t{1} << 40; bytes = bytes * 3 / 2 + 7) {
        const std::int64_t now = ns(kind, group, bytes);
        EXPECT_GE(now, before) << to_string(kind) << " of " << group.members << ", " << bytes;
        before = now;
      }
    }
  }
}

TEST(CollectivePrice, BetweenNodesTheLeastOfThreeWaysCounts) {
  const auto algorithm = [](const CollectiveGroup& group, std::int64_t bytes) {
    return price_of(some_model(), ActionKind::AllReduce, group, bytes).algorithm;
  };
  // Few bytes: as few steps between nodes as there can be; between two nodes that is one each way.
  EXPECT_EQ(algorithm({512, 64, 8}, 1024), CollectiveAlgorithm::Tree);
  EXPECT_EQ(algorithm({16, 2, 8}, 1024), CollectiveAlgorithm::Hierarchical);
  // Many: a ring uses the links inside and between nodes at the same time.
  CollectiveModel fast_between = some_model();
  fast_between.across_bytes_per_second = 1e12;
  EXPECT_EQ(
      price_of(fast_between, ActionKind::AllReduce, {16, 2, 8}, std::int64_t{1} << 36).algorithm,
      CollectiveAlgorithm::Ring);
  CollectiveModel slow_between = some_model();
  slow_between.across_bytes_per_second = 1e9;
  const auto with_slow = price_of(slow_between, ActionKind::AllReduce, {16, 2, 8}, 1 << 30);
  EXPECT_EQ(with_slow.algorithm, CollectiveAlgorithm::Hierarchical);
  EXPECT_NE(price_of(slow_between, ActionKind::AllReduce, {12, 2, 8}, 1 << 30).algorithm,
            CollectiveAlgorithm::Hierarchical)
      << "nodes of 8 and of 4";
  // By hand: 2(g-1) steps inside, 2 between; 7/4 of the bytes inside, all of them once between.
  const double bytes = std::ldexp(1.0, 30);
  EXPECT_EQ(with_slow.time.value,
            static_cast<std::int64_t>(
                std::ceil(5000 + 42000 + 14 * 1800 + 2 * 9000 + bytes * 7 / 4 / 200 + bytes)));
}

TEST(CollectivePrice, OfWhatAStageReduces) {
  Collective reduce;
  reduce.kind = ActionKind::ReduceGrad;
  EXPECT_EQ(library_kind(reduce), ActionKind::AllReduce);
  reduce.sharded = true;
  EXPECT_EQ(library_kind(reduce), ActionKind::ReduceScatter);
  reduce.kind = ActionKind::Unshard;
  EXPECT_EQ(library_kind(reduce), ActionKind::AllGather);
}

/// As a machine with exactly this model would measure them.
MeasuredCollectives rows_of(const CollectiveModel& model, const std::vector<int>& sizes) {
  MeasuredCollectives measured{"made", {}};
  for (const int n : sizes) {
    for (std::int64_t bytes = 8; bytes <= std::int64_t{1} << 30; bytes *= 2) {
      const CollectivePrice price = price_of(model, ActionKind::AllReduce, {n, 1, n}, bytes);
      measured.rows.push_back({{n, 1, n}, bytes, static_cast<double>(price.time.value)});
    }
  }
  return measured;
}

TEST(CollectiveFit, FindsTheModelThatMadeTheRows) {
  std::vector<CollectiveModel> models(3, some_model());
  models[1].launch_ns = 0;
  models[1].step_ns = 700;
  models[2].bulk_ns = 9000;
  models[2].part_ns_per_byte = 0.05;
  models[2].bytes_per_second = 1.2e10;
  for (const CollectiveModel& model : models) {
    const CollectiveModel found = fit_collectives(rows_of(model, {2, 4, 8}));
    EXPECT_NEAR(found.launch_ns, model.launch_ns, 60);
    EXPECT_NEAR(found.step_ns / model.step_ns, 1, 0.01);
    EXPECT_NEAR(found.part_ns_per_byte / model.part_ns_per_byte, 1, 0.02);
    EXPECT_NEAR(found.bulk_ns / model.bulk_ns, 1, 0.02);
    EXPECT_NEAR(found.bytes_per_second / model.bytes_per_second, 1, 0.01);
    EXPECT_EQ(found.source, "made");
    for (const LeftOutGroup& group : leave_each_size_out(rows_of(model, {2, 4, 8})))
      EXPECT_LT(group.errors.mean, 0.01) << group.members;
  }
}

TEST(CollectiveFit, AGroupThatIsLeftOutChangesNothing) {
  MeasuredCollectives rows = rows_of(some_model(), {2, 4, 8});
  const std::vector<LeftOutGroup> before = leave_each_size_out(rows);
  ASSERT_EQ(before.size(), 3U);
  for (MeasuredCollective& row : rows.rows) {
    if (row.group.members == 4) row.ns *= 2;
  }
  const std::vector<LeftOutGroup> after = leave_each_size_out(rows);
  EXPECT_EQ(after[1].model, before[1].model);
  EXPECT_NEAR(after[1].errors.mean, 0.5, 0.01);
  EXPECT_NE(after[0].model, before[0].model);
}

TEST(CollectiveFit, SaysWhatItNeeds) {
  EXPECT_NE(refusal([] { fit_collectives(rows_of(some_model(), {4})); })
                .message()
                .find("at least two sizes of groups"),
            std::string::npos);
  MeasuredCollectives small{"small", {}};
  for (const int n : {2, 4, 8}) small.rows.push_back({{n, 1, n}, 8, 5000.0 + n});
  EXPECT_NE(
      refusal([&] { fit_collectives(small); }).message().find("do not tell what a byte costs"),
      std::string::npos);
  EXPECT_TRUE(leave_each_size_out(rows_of(some_model(), {2, 8})).empty());
}

constexpr const char* kNcclTests =
    R"(# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor)
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid  71 on     node-a device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid  71 on     node-a device  1 [0x0a] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     0.21    0.00    0.00      0     0.20    0.00    0.00      0
           8             2     float     sum      -1     8.65    0.00    0.00      0     8.60    0.00    0.00      0
     1048576        262144     float     sum      -1    59.46   17.63   17.63      0    58.00   18.08   18.08      0
# Out of bounds values : 0 OK
)";

TEST(CollectiveRows, OfNcclTests) {
  const auto read = [](const std::string& text) {
    return read_collective_text(text, "log", 8).rows;
  };
  std::string text = kNcclTests;
  std::vector<MeasuredCollective> rows = read(text);
  ASSERT_EQ(rows.size(), 2U) << "nothing is moved where there are 0 bytes";
  EXPECT_EQ(rows[1].group.members, 2);
  EXPECT_EQ(rows[1].group.nodes, 1);
  EXPECT_EQ(rows[1].bytes, 1048576);
  EXPECT_DOUBLE_EQ(rows[1].ns, 59460);
  // A second run after it, on two hosts, by an older release without roots.
  text +=
      "#   Rank  0 Pid  5 on node-a device  0 [0x07] V100\n"
      "#   Rank  1 Pid  6 on node-b device  0 [0x07] V100\n"
      "#   Rank  2 Pid  7 on node-b device  1 [0x07] V100\n"
      "#       size  count  type  redop  time  algbw  busbw  error\n"
      "  1024  256  float  sum  31.5  0.03  0.05  0e+00\n";
  rows = read(text);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].group.members, 3);
  EXPECT_EQ(rows[2].group.nodes, 2);
  EXPECT_EQ(rows[2].group.most_on_node, 2);
  EXPECT_DOUBLE_EQ(rows[2].ns, 31500);
}

TEST(CollectiveRows, OfJsonFillNodes) {
  const MeasuredCollectives measured = read_collective_text(
      R"({"source": "s", "columns": ["bytes", "time_us", "busbw_GBps"],
          "by_gpus": {"1": [[8, 4.4, 0]], "2": [[8, 8.65, 0.0]], "16": [[64, 90, 1]], "32": []}})",
      "f.json", 8);
  EXPECT_EQ(measured.source, "s");
  ASSERT_EQ(measured.rows.size(), 2U) << "one GPU only copies";
  EXPECT_EQ(measured.rows[1].group.nodes, 2);
  EXPECT_EQ(measured.rows[1].group.most_on_node, 8);
}

TEST(CollectiveRows, ComplaintsNameThePlace) {
  const auto place = [](const std::string& text) {
    const InputError error = refusal([&] { read_collective_text(text, "f", 8); });
    test::expect_one_line(error);
    EXPECT_EQ(error.file(), "f");
    return error.pointer();
  };
  EXPECT_EQ(place(R"({"by_gpus": {"2": [[8, -1]]}})"), "/by_gpus/2/0/1");
  EXPECT_EQ(place(R"({"by_gpus": {"two": []}})"), "/by_gpus/two");
  EXPECT_EQ(place(R"({"by_gpus": {"2": [[8]]}})"), "/by_gpus/2/0");
  EXPECT_EQ(place(R"({"columns": ["time_us", "bytes"], "by_gpus": {}})"), "/columns");
  EXPECT_EQ(place(R"({"rows": []})"), "/rows");
  EXPECT_EQ(place("hello\n"), "");
  EXPECT_EQ(place("# size count type redop time\n 8 2 float sum\n"), "line 2");
  EXPECT_EQ(place("# size count type redop time\n 8 2 float sum 8.5\n"), "line 2");
  const std::string ranks = "# Rank 0 on a device 0\n# Rank 1 on a device 1\n";
  EXPECT_EQ(place(ranks + "# size count type redop time\n8 2 float none 8.5\n"), "line 4");
  EXPECT_EQ(place(ranks + "# size count type redop time\n8 2 float sum nan\n"), "line 4");
  EXPECT_EQ(place("# Collective test starting: all_gather_perf\n"), "line 1");
}

Cluster read(const std::string& section) {
  const Json document =
      Json::parse(R"({"schema": "pipewright.cluster/1", "preset": "dgx-a100", "devices": 16,
                      "collectives": )" +
                  section + "}");
  return read_cluster(JsonCursor(document, "cluster.json"));
}

TEST(CollectivesOfACluster, AreWrittenAsTheyWereRead) {
  const Cluster cluster = read(to_json(some_model()).dump());
  EXPECT_EQ(cluster.collectives, some_model());
  const Json written = to_json(cluster);
  EXPECT_EQ(read_cluster(JsonCursor(written, "again")).collectives, some_model());
  EXPECT_EQ(to_json(cluster_preset("dgx-a100")).contains("collectives"), false);
}

TEST(CollectivesOfACluster, MayBeRows) {
  Json section = {{"source", "made"}, {"by_gpus", Json::object()}};
  for (const MeasuredCollective& row : rows_of(some_model(), {2, 4}).rows)
    section["by_gpus"][std::to_string(row.group.members)].push_back({row.bytes, row.ns / 1e3});
  EXPECT_NEAR(read(section.dump()).collectives->step_ns, 1800, 20);
  const InputError error = refusal([] { read(R"({"by_gpus": {"2": [[8, 8.65]]}})"); });
  EXPECT_EQ(error.pointer(), "/collectives");
}

TEST(CollectivesOfACluster, ComplaintsNameThePlace) {
  EXPECT_EQ(refusal([] { read(R"({"launch_ns": 1})"); }).pointer(), "/collectives");
  Json section = to_json(some_model());
  section["bytes_per_second"] = 0;
  EXPECT_EQ(refusal([&] { read(section.dump()); }).pointer(), "/collectives/bytes_per_second");
}

TEST(CollectivesOfACluster, PriceWhatRanksOnItsDevicesDo) {
  Cluster cluster = cluster_preset("dgx-a100", 16);
  Collective all;
  all.kind = ActionKind::AllReduce;
  all.call_bytes = 1 << 20;
  for (int rank = 0; rank < 4; ++rank) all.members.push_back({RankId(rank)});
  CostTable costs;
  set_routes(costs, cluster, {0, 1, 8, 9});
  EXPECT_EQ(costs.collectives, nullptr);
  const Nanoseconds ring = costs.collective_time(all, 4);
  cluster.collectives = some_model();
  set_routes(costs, cluster, {0, 1, 8, 9});
  EXPECT_EQ(costs.collective_time(all, 4).value, ns(ActionKind::AllReduce, {4, 2, 2}, 1 << 20));
  EXPECT_NE(costs.collective_time(all, 4), ring);
  set_routes(costs, cluster, {0, 1, 2, 3});
  EXPECT_EQ(costs.collective_time(all, 4).value, ns(ActionKind::AllReduce, {4, 1, 4}, 1 << 20));
}

TEST(CollectivesOfACluster, PortsSayWhatTheModelDoesNot) {
  Cluster cluster = cluster_preset("dgx-a100", 16);
  cluster.collectives = some_model();
  EXPECT_EQ(collectives_on(cluster).across_bytes_per_second, 1e11);
  cluster.collectives->across_bytes_per_second = 0;
  EXPECT_EQ(
      collectives_on(cluster).across_bytes_per_second,
      cluster.across.bytes_per_second * (cluster.network_ports > 0 ? cluster.network_ports : 8));
  EXPECT_EQ(collectives_on(cluster).across_step_ns,
            static_cast<double>(cluster.across.latency.value));
}

}  // namespace collectives_test
}  // namespace pipewright
