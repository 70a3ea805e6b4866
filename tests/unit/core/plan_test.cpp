#include "core/plan/plan.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/expect_refusal.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright {
namespace plan_test {

using test::sample_plan;

Plan read(const Json& document) { return read_plan(JsonCursor(document, "plan.json")); }

Json changed(const char* pointer, const Json& value) {
  Json document = to_json(sample_plan());
  document[Json::json_pointer(pointer)] = value;
  return document;
}

InputError refused(const char* pointer, const Json& value) {
  const Json document = changed(pointer, value);
  return test::refusal([&] { read(document); });
}

TEST(ReadPlan, GivesBackWhatWasWritten) {
  const Plan written = sample_plan();
  const Plan plan = read(to_json(written));
  EXPECT_EQ(plan.ranks(), 2);
  EXPECT_EQ(plan.stages[1].first_layer, 3);
  EXPECT_EQ(plan.schedule.order->ranks, written.schedule.order->ranks);
  EXPECT_EQ(plan.schedule.order->placement.rank_of(StageId(1), MicroBatchId(0)), RankId(1));
  EXPECT_EQ(plan.policy, written.policy);
  EXPECT_EQ(plan.costs.route(RankId(0), RankId(1), 2).latency, Nanoseconds(9));
  EXPECT_EQ(plan.costs.route(RankId(1), RankId(0), 2).latency, Nanoseconds(7));
  EXPECT_EQ(plan.costs.memory[0].w, Bytes(-40));
  EXPECT_EQ(plan.tuner.seed, UINT64_MAX);
  EXPECT_EQ(plan.tuner.pruned, written.tuner.pruned);
  EXPECT_EQ(plan.executable, written.executable);
  EXPECT_EQ(plan.predicted.peak_bytes, written.predicted.peak_bytes);
}

TEST(ReadPlan, PartsAreOfItsStagesAndNameWaysInWhichDevicesDiffer) {
  const auto parts = [](const char* action, const char* call) {
    return refused("/parts", Json{{action, {"attention*3", call}}});
  };
  const InputError alone = parts("0F", "ALL_REDUCE(tp:x)");
  EXPECT_EQ(alone.pointer(), "/parts/0F/1");
  EXPECT_NE(alone.message().find("this plan has none, each rank is one device"), std::string::npos);
  EXPECT_EQ(parts("2F", "mlp").pointer(), "/parts/2F");
  EXPECT_EQ(parts("0F", "mlp*0").pointer(), "/parts/0F");

  Json document = changed("/parts", Json{{"0F", {"attention*3", "ALL_REDUCE(tp:x)"}}});
  document["schema"] = "pipewright.plan/2";
  document["cluster"] = to_json(cluster_preset("local-cpu", 8));
  document.erase("cluster_fingerprint");
  document["mesh"] = to_json(Mesh::grid(2, 2, 1, 2));
  const Plan plan = read(document);
  EXPECT_EQ(plan.replicas(), 2);
  EXPECT_EQ(plan.all_ranks(), 2) << "one replica stands for both";
  EXPECT_EQ(axes_of(plan), (std::vector<MeshAxis>{{"tp", 2}, {"dp", 2}}));
  document["parts"]["0F"][1] = "ALL_REDUCE(xp:x)";
  EXPECT_NE(test::refusal([&] { read(document); }).message().find("tp (2), dp (2)"),
            std::string::npos);
  document["expert_parallel"] = 2;
  document["parts"]["0F"][1] = "ALL_REDUCE(dp:x)";
  EXPECT_NE(test::refusal([&] { read(document); }).message().find("tp (2), ep (2)"),
            std::string::npos);
}

TEST(ReadPlan, WholeExpertsBesideTpExchangeRowsAlongSeveralAxes) {
  Json document =
      changed("/parts", Json{{"0F", {"experts*3", "ALL_TO_ALL(tp+ep:x:4x8:bfloat16)"}}});
  document["schema"] = "pipewright.plan/2";
  document["cluster"] = to_json(cluster_preset("local-cpu", 16));
  document.erase("cluster_fingerprint");
  document["mesh"] = to_json(Mesh::grid(2, 4, 1, 2));
  document["expert_parallel"] = 4;
  document["sequence_parallel"] = true;
  document["expert_tensor_parallel"] = 1;
  const Plan plan = read(document);
  EXPECT_EQ(plan.division(), (StageDivision{2, 2, true, 1, ExpertFold::Tensor}));
  EXPECT_EQ(axes_of(plan), (std::vector<MeshAxis>{{"tp", 2}, {"ep", 2}, {"dp", 2}}));
  EXPECT_EQ(to_json(plan).at("expert_tensor_parallel"), 1);
  document["parts"]["0F"][1] = "ALL_TO_ALL(tp+dp:x)";  // they do not follow one another
  EXPECT_NE(test::refusal([&] { read(document); }).message().find("tp (2), ep (2), dp (2)"),
            std::string::npos);
  document["parts"]["0F"][1] = "ALL_TO_ALL(tp+ep:x)";
  document["expert_tensor_parallel"] = 3;
  EXPECT_NE(test::refusal([&] { read(document); }).message().find("2"), std::string::npos);
}

TEST(ReadPlan, KeysGoRoundRanksAlongCp) {
  Json document = to_json(sample_plan());
  document["cluster"] = to_json(cluster_preset("local-cpu", 16));
  document.erase("cluster_fingerprint");
  document.erase("predicted");  // of two ranks
  document["mesh"] = to_json(Mesh::grid_of_parts(2, 1, 2, 1));
  document["replicas_are_ranks"] = true;
  EXPECT_FALSE(read(document).ring);
  document["cp_comm_type"] = "all_gather";
  EXPECT_FALSE(to_json(read(document)).contains("cp_comm_type"));
  document["cp_comm_type"] = "p2p";
  EXPECT_EQ(read(document).division(), (StageDivision{.context = 2, .ring = true}));
  EXPECT_EQ(to_json(read(document)).at("cp_comm_type"), "p2p");
  document["cp_comm_type"] = "a2a";
  EXPECT_EQ(test::refusal([&] { read(document); }).pointer(), "/cp_comm_type");
  document["cp_comm_type"] = "p2p";
  document["mesh"] = to_json(Mesh::grid_of_replicas(2, 1, 1, 1));
  document.erase("replicas_are_ranks");
  EXPECT_EQ(test::refusal([&] { read(document); }).pointer(), "/cp_comm_type");
}

TEST(ReadPlan, OptionalPartsMayBeMissing) {
  Json document = to_json(sample_plan());
  for (const char* key :
       {"policy", "predicted", "executable", "training", "tuner", "cluster_fingerprint"}) {
    document.erase(key);
  }
  const Plan plan = read(document);
  EXPECT_EQ(plan.policy, CommPolicy{});
  EXPECT_TRUE(plan.executable.empty());
}

TEST(ReadPlan, EveryAnswerOfADeviceIsWrittenAsItWasRead) {
  using Answer = Executable::Answer;
  const std::vector<std::pair<std::string, Executable>> answers = {
      {"yes", {Answer::Yes, ""}},
      {"needs a GPU", {Answer::IfThere, "a GPU"}},
      {"needs ", {Answer::IfThere, ""}},
      {"needs", {Answer::No, "needs"}},
      {"no GPU", {Answer::No, "no GPU"}},
      {"yes, it does", {Answer::No, "yes, it does"}},
      {"", {Answer::No, ""}}};
  for (const auto& [text, executable] : answers) {
    Json document = to_json(sample_plan());
    document["executable"] = {{"cuda", text}};
    const Plan plan = read(document);
    EXPECT_EQ(plan.executable.at("cuda"), executable) << text;
    EXPECT_EQ(to_json(plan).at("executable"), document.at("executable"));
  }
}

TEST(ReadPlan, RoutesOfTheClusterAreNotWrittenOut) {
  Plan plan = sample_plan();
  plan.cluster = cluster_preset("dgx-a100", 16);
  plan.mesh.devices = {0, 8};
  set_routes(plan.costs, plan.cluster, {0, 8});
  const Json document = to_json(plan);
  EXPECT_EQ(document.at("costs").at("routes"), "cluster");
  EXPECT_FALSE(document.at("costs").contains("links"));
  const Plan again = read(document);
  EXPECT_EQ(again.costs.links.size(), plan.costs.links.size());
  EXPECT_EQ(again.costs.route(RankId(0), RankId(1), 2).latency, plan.cluster.across.latency);
  EXPECT_EQ(to_json(again), document);
}

TEST(ReadPlan, StagesCoverTheModelAndTheRanks) {
  EXPECT_EQ(refused("/stages/1/layers", {4, 6}).pointer(), "/stages/1/layers/0");
  EXPECT_EQ(refused("/stages/1/layers", {2, 6}).pointer(), "/stages/1/layers/0");
  EXPECT_EQ(refused("/stages/1/layers", {3, 3}).pointer(), "/stages/1/layers/1");
  EXPECT_EQ(refused("/stages/1/layers", {3, 7}).pointer(), "/stages/1/layers/1");
  EXPECT_EQ(refused("/stages/1/layers", {3, 5}).message(),
            "expected stages that cover all 6 layers of the model, found an array of 2");
  EXPECT_EQ(refused("/stages/1/layers", {3}).pointer(), "/stages/1/layers");
  EXPECT_EQ(refused("/stages/1/rank", 2).pointer(), "/stages/1/rank");
  EXPECT_EQ(refused("/stages/1/rank", 0).message(),
            "expected a stage on every rank of the mesh (rank 1 has none), found an array of 2");
}

TEST(ReadPlan, PartsThatDoNotFitEachOther) {
  EXPECT_EQ(refused("/mesh/devices", {0, 2}).pointer(), "/mesh/devices/1");
  EXPECT_EQ(refused("/schedule/chunks", 2).pointer(), "/schedule/chunks");
  EXPECT_EQ(refused("/costs/activation_bytes", {1, 2}).pointer(), "/costs/activation_bytes");
  EXPECT_EQ(refused("/costs/memory", Json::array({to_json(sample_plan())["costs"]["memory"][0]}))
                .pointer(),
            "/costs/memory");
  EXPECT_EQ(refused("/costs/every_route/links", {1}).pointer(), "/costs/every_route/links/0");
  EXPECT_EQ(refused("/costs/routes/0/to", 2).pointer(), "/costs/routes/0/to");
  EXPECT_EQ(refused("/costs/routes/0/bytes_per_second", 1e-9).pointer(),
            "/costs/routes/0/bytes_per_second");
  EXPECT_EQ(refused("/costs/routes", "cluster").pointer(), "/costs/every_route");
  EXPECT_EQ(refused("/predicted/peak_bytes", {1}).pointer(), "/predicted/peak_bytes");
  EXPECT_EQ(refused("/cluster_fingerprint", "cpu of yore").pointer(), "/cluster_fingerprint");
  EXPECT_EQ(refused("/micro_batches", 1 << 20).pointer(), "/schedule/order");
}

TEST(ReadPlan, OrdersHaveToBeWhole) {
  EXPECT_EQ(refused("/schedule/order/0/0", "0G0").pointer(), "/schedule/order/0/0");
  EXPECT_EQ(refused("/schedule/order/0/0", "2F0").message(),
            "expected a stage of the plan, 0 to 1, found \"2F0\"");
  EXPECT_EQ(refused("/schedule/order/0/0", "0F2").pointer(), "/schedule/order/0/0");
  EXPECT_EQ(refused("/schedule/order/0/0", 7).pointer(), "/schedule/order/0/0");
  EXPECT_EQ(refused("/schedule/order/0/0", "0F1").pointer(), "/schedule/order");  // 0F1 twice
  EXPECT_EQ(refused("/schedule/order/0", Json::array()).message(),
            "expected at least 8 actions (a forward and a backward of each stage and micro-batch), "
            "found 4");
  EXPECT_EQ(refused("/schedule/order", Json::array({Json::array()})).pointer(), "/schedule/order");
  Json document = changed("/schedule/name", "custom");
  EXPECT_NO_THROW(read(document));
  document["schedule"].erase("order");
  EXPECT_EQ(test::refusal([&] { read(document); }).pointer(), "/schedule");
}

/// The sample plan with an order of its own, given as a CSV.
Json with_order(std::string_view csv) {
  Plan plan = sample_plan();
  plan.schedule.order = read_order_csv(csv, "o");
  plan.schedule.name = "custom";
  plan.micro_batches = 4;
  return to_json(plan);
}

TEST(ReadPlan, OrdersWithReplicasComeBackAsTheyWere) {
  // Micro-batches 0 and 2 go down the ranks, 1 and 3 up.
  const std::string csv = "0F0,1F1,1B1,0B0,0F2,1F3,1B3,0B2\n1F0,0F1,1B0,0B1,1F2,0F3,1B2,0B3\n";
  const Json document = with_order(csv);
  const Plan plan = read(document);
  ASSERT_TRUE(plan.schedule.order->placement.looks_at_micro_batch());
  for (const int m : {0, 1, 2, 3}) {
    EXPECT_EQ(plan.schedule.order->placement.rank_of(StageId(0), MicroBatchId(m)), RankId(m % 2));
  }
  EXPECT_EQ(write_order_csv(*plan.schedule.order), csv);
  EXPECT_EQ(to_json(plan), document);
}

TEST(ReadPlan, FewerStagesThanRanksNeedReplicas) {
  Json document =
      with_order("0F0,0B0,0F2,0B2,0REDUCE_GRAD,OPT\n0F1,0B1,0F3,0B3,0REDUCE_GRAD,OPT\n");
  document["stages"] = Json::array({{{"layers", {0, 6}}, {"rank", 0}}});
  document["costs"]["stages"].erase(1);
  document["costs"]["memory"].erase(1);
  document["costs"]["activation_bytes"] = Json::array();
  document["costs"]["gradient_bytes"] = Json::array();
  const Plan plan = read(document);
  EXPECT_EQ(plan.schedule.order->placement.rank_of(StageId(0), MicroBatchId(3)), RankId(1));
  document["schedule"]["order"][1] = Json::array({"OPT"});
  document["schedule"]["order"][0] =
      Json::array({"0F0", "0B0", "0F1", "0B1", "0F2", "0B2", "0F3", "0B3"});
  EXPECT_EQ(test::refusal([&] { read(document); }).message(),
            "rank 1 computes no stage; use a mesh with fewer ranks");
}

TEST(ReadPlan, VersionsInAnOrderHaveToExist) {
  const std::string fine =
      "0F0@0,0F1@0,0B0@0,OPT,0F2@1,0B1@0,OPT,0F3@2,0B2@1,OPT,0B3@2,OPT\n"
      "1F0@0,1B0@0,OPT,1F1@1,1B1@1,OPT,1F2@2,1B2@2,OPT,1F3@3,1B3@3,OPT\n";
  EXPECT_EQ(to_json(read(with_order(fine))), with_order(fine));
  EXPECT_EQ(test::refusal([&] {
              Json document = with_order(fine);
              document["schedule"]["order"][1][0] = "1F0@1";
              read(document);
            }).pointer(),
            "/schedule/order");
}

TEST(ReadPlan, PolicyByNameOrByField) {
  EXPECT_EQ(read(changed("/policy", "megatron-batched")).policy,
            comm_policy_preset("megatron-batched"));
  const CommPolicy mixed =
      read(changed("/policy", {{"preset", "torch-pair"}, {"send_f", "eager:16KiB"}})).policy;
  EXPECT_EQ(mixed.channel, Channel::Pair);
  EXPECT_EQ(mixed.send_f, (Protocol{Protocol::Kind::EagerBytes, 16384}));
  EXPECT_EQ(refused("/policy", "torsh").pointer(), "/policy");
  EXPECT_EQ(refused("/policy/channel", "edges").pointer(), "/policy/channel");
  EXPECT_EQ(refused("/policy/send_b", "eager:-1").pointer(), "/policy/send_b");
}

TEST(Plans, SavedAndLoaded) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("pipewright-plan-" + std::to_string(::getpid()) + ".json");
  save_plan(sample_plan(), path.string());
  const std::string first = read_text(path.string());
  save_plan(load_plan(path.string()), path.string());
  EXPECT_EQ(read_text(path.string()), first);
  std::filesystem::remove(path);
}

}  // namespace plan_test
}  // namespace pipewright
