// Graphs whose stages work on micro-batches: in the order of any schedule the losses, gradients and
// parameters of one rank, and of one large batch.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "core/spmd/graph/completion.hpp"
#include "core/spmd/graph/graph_json.hpp"
#include "exec/spmd/graph_timeline.hpp"
#include "exec/spmd/graph_training.hpp"
#include "planner/schedules/registry.hpp"
#include "planner/tensor_placement/stage_work.hpp"
#include "sim/engine.hpp"

namespace pipewright::exec::graphs {
namespace pipelined_graph_test {

using spmd::OperatorGraph;
using spmd::PartPlacement;

constexpr int kWidth = 6;

Json tensor(std::vector<int> shape) { return {{"shape", std::move(shape)}, {"type", "float32"}}; }

/// A product on each layer's mesh, and a residual; what the first operator makes is taken by the
/// last layer, too, and its weight by the head.
Json layered(int meshes, int layers, int batch, std::vector<int> mesh_shape) {
  Json graph = {{"schema", "pipewright.graph/1"},
                {"meshes", Json::object()},
                {"tensors", Json::object()},
                {"operators", Json::array()}};
  const bool divides = mesh_shape[1] > 1;
  int rank = 0;
  for (int at = 0; at < meshes; ++at) {
    std::vector<int> ranks(static_cast<std::size_t>(mesh_shape[0] * mesh_shape[1]));
    for (int& one : ranks) one = rank++;
    graph["meshes"]["m" + std::to_string(at)] = {
        {"shape", mesh_shape}, {"dim_names", {"dp", "tp"}}, {"ranks", ranks}};
  }
  Json& tensors = graph["tensors"];
  const auto add = [&](const std::string& name, const std::string& rule, Json inputs,
                       const std::string& output, Json attributes = Json::array()) {
    graph["operators"].push_back({{"name", name},
                                  {"rule", rule},
                                  {"inputs", std::move(inputs)},
                                  {"outputs", {output}},
                                  {"attributes", std::move(attributes)}});
    if (!tensors.contains(output)) tensors[output] = tensor({batch, kWidth});
  };
  const auto weight = [&](const std::string& name, int at) {
    tensors[name] = tensor({kWidth, kWidth});
    tensors[name]["role"] = "parameter";
    tensors[name]["annotation"] = {{"mesh", "m" + std::to_string(at)},
                                   {"placements", {"R", divides && at % 2 == 0 ? "S1" : "R"}}};
  };
  tensors["x"] = tensor({batch, kWidth});
  tensors["x"]["annotation"] = {{"mesh", "m0"},
                                {"placements", {mesh_shape[0] > 1 ? "S0" : "R", "R"}}};
  weight("shared", 0);
  add("embed", "matmul", {"x", "shared"}, "h0");
  for (int layer = 0; layer < layers; ++layer) {
    const std::string number = std::to_string(layer), name = "Block_" + number + "/";
    weight("w" + number, layer * meshes / layers);
    add(name + "up", "matmul", {"h" + number, "w" + number}, "u" + number);
    add(name + "tanh", "tanh", {"u" + number}, "t" + number);
    const std::string before = layer + 1 == layers ? "h0" : "h" + number;
    add(name + "add", "add", {"t" + number, before}, "h" + std::to_string(layer + 1));
  }
  add("head", "matmul", {"h" + std::to_string(layers), "shared"}, "y", {false, true});
  add("square", "square", {"y"}, "squares");
  tensors["loss"] = tensor({});
  add("loss", "mean", {"squares"}, "loss", {{0, 1}, false});
  return graph;
}

OperatorGraph graph_of(const Json& json) {
  return spmd::read_graph(JsonCursor(json, "graph.json"));
}

Order order_of(const OperatorGraph& given, const spmd::PipelineStages& stages,
               std::string_view schedule_name) {
  planner::ScheduleRequest request;
  request.ranks = static_cast<int>(stages.meshes.size());
  request.micro_batches = given.pipeline->accumulate_steps;
  request.chunks = stages.chunks;
  return planner::make_order(schedule_name, request);
}

Program program_of(const OperatorGraph& given, const spmd::PipelineStages& stages,
                   std::string_view schedule_name) {
  return lower(order_of(given, stages, schedule_name), {}, {.optimizer = true});
}

GraphTraining trained(const OperatorGraph& given, std::string_view schedule_name,
                      const GraphTrainingOptions& asked) {
  const OperatorGraph graph = completed(given).graph;
  const spmd::PipelineStages stages = spmd::pipeline_stages(graph);
  const Program program = program_of(given, stages, schedule_name);
  GraphTrainingOptions options = asked;
  options.schedule = schedule_of(stages, program);
  return train_graph(graph, training_steps(graph, loss_of(graph, "loss"), stages.order_of(graph)),
                     options);
}

GraphTraining trained_serially(const OperatorGraph& given, GraphTrainingOptions options) {
  const OperatorGraph serial = on_one_rank(given);
  options.schedule =
      one_after_another(spmd::pipeline_stages(serial), given.pipeline->accumulate_steps);
  return train_graph(serial, training_steps(serial, loss_of(serial, "loss")), options);
}

void expect_near(const GraphTraining& one, const GraphTraining& other, bool same_bits,
                 double relative = 1e-6) {
  const auto near = [&](const std::vector<float>& a, const std::vector<float>& b,
                        const std::string& what) {
    const ArrayDifference found = difference(a, b);
    EXPECT_LE(found.relative, relative) << what;
    EXPECT_TRUE(found.same_bits || !same_bits) << what << " " << found.relative;
  };
  for (std::size_t step = 0; step < one.losses.size(); ++step) {
    near({static_cast<float>(one.losses[step])}, {static_cast<float>(other.losses[step])}, "loss");
  }
  for (const auto& [name, values] : one.gradients)
    near(values, other.gradients.at(name), "gradient of " + name);
  for (const auto& [name, values] : one.parameters) near(values, other.parameters.at(name), name);
  EXPECT_FALSE(one.parameters.empty());
}

struct Asked {
  PartPlacement placement = PartPlacement::OneEach;
  int chunks = 1;
};

/// Of the registry's schedules those whose stages a graph can be; nullopt of others.
std::optional<Asked> asked_of(const planner::Schedule& schedule) {
  const bool is_v =
      schedule.layout == planner::Layout::V || schedule.layout == planner::Layout::Waves;
  if (schedule.traits.asynchronous || schedule.traits.searched) return std::nullopt;
  if (!is_v && schedule.layout != planner::Layout::Loop) return std::nullopt;
  if (is_v) return Asked{PartPlacement::V, schedule.default_chunks};
  return Asked{schedule.default_chunks > 1 ? PartPlacement::Loop : PartPlacement::OneEach,
               schedule.default_chunks};
}

OperatorGraph pipeline(Json json, const Asked& asked, int micro_batches) {
  json["pipeline"] = {{"vpp_degree", asked.chunks},
                      {"vpp_seg_method", "layer:Block"},
                      {"accumulate_steps", micro_batches}};
  OperatorGraph graph = graph_of(json);
  graph.pipeline->placement = asked.placement;
  return graph;
}

/// One process for a stage: no sum has another order, but for the weight that two stages use.
TEST(PipelinedGraph, HasTheBitsOfOneRankUnderEverySchedule) {
  int tried = 0;
  for (const planner::Schedule& schedule : planner::schedules()) {
    const auto asked = asked_of(schedule);
    if (!asked) continue;
    SCOPED_TRACE(std::string(schedule.name));
    Json json = layered(2, 4, 3, {1, 1});
    json["operators"][json["operators"].size() - 3]["inputs"][1] = "head.w";
    json["tensors"]["head.w"] = json["tensors"]["w3"];
    const OperatorGraph given = pipeline(json, *asked, 8);
    planner::ScheduleRequest request;
    request.ranks = 2;
    request.micro_batches = 8;
    request.chunks = asked->chunks;
    if (refusal_of(schedule, request)) continue;
    expect_near(trained(given, schedule.name, {}), trained_serially(given, {}), true);
    ++tried;
  }
  EXPECT_GE(tried, 15);
}

TEST(PipelinedGraph, AgreesWhereMeshesDivideAndStagesShareAWeight) {
  for (const char* name : {"1f1b", "interleaved", "zb-h1", "zbv", "zbvpp"}) {
    SCOPED_TRACE(name);
    const Asked asked = *asked_of(planner::find_schedule(name));
    const OperatorGraph given = pipeline(layered(2, 4, 4, {2, 2}), asked, 4);
    expect_near(trained(given, name, {}), trained_serially(given, {}), false);
  }
}

TEST(PipelinedGraph, KeepsStatesOfTheOptimizerDivided) {
  Json json = layered(2, 4, 4, {2, 1});
  for (const int stage : {1, 2, 3}) {
    json["optimizer"] = {{"type", "adamw"}, {"sharding_stage", stage}};
    const OperatorGraph given = pipeline(json, {PartPlacement::Loop, 2}, 4);
    expect_near(trained(given, "interleaved", {}), trained_serially(given, {}), false, 2e-5);
  }
}

/// Of equal micro-batches the mean of the means is the mean of all: a graph with a batch as large
/// as all of them together has the same loss and gradients.
TEST(PipelinedGraph, IsOneLargeBatch) {
  constexpr int kMicroBatches = 4, kRows = 3;
  GraphTrainingOptions options;
  for (int at = 0; at < kMicroBatches * kRows * kWidth; ++at) {
    options.values["x"].push_back(static_cast<float>(at % 17) / 8 - 1);
  }
  const OperatorGraph given =
      pipeline(layered(2, 2, kRows, {1, 1}), {PartPlacement::OneEach, 1}, kMicroBatches);
  const OperatorGraph large = on_one_rank(graph_of(layered(2, 2, kRows * kMicroBatches, {1, 1})));
  const GraphTraining whole =
      train_graph(large, training_steps(large, loss_of(large, "loss")), options);
  expect_near(trained(given, "1f1b", options), whole, false, 1e-5);
}

TEST(PipelinedGraph, HoldsFewerActivationsUnder1f1bThanUnderGpipe) {
  const OperatorGraph given = pipeline(layered(2, 4, 64, {1, 1}), {PartPlacement::OneEach, 1}, 8);
  EXPECT_LT(trained(given, "1f1b", {}).memory.all, trained(given, "gpipe", {}).memory.all / 2);
}

/// One behind the other on a rank, and behind what they take from other stages.
void expect_in_order(const Program& program, const Timeline& timeline) {
  std::map<std::pair<bool, std::pair<int, int>>, std::int64_t>
      ends;  // forward?, stage, micro-batch
  for (InstructionId at = 0; at < program.code.size(); ++at) {
    const Action action = program.cell(at).action;
    const bool gives = is_compute(action.kind) && action.kind != ActionKind::W;
    if (gives) {
      ends[{action.kind == ActionKind::F, {action.stage.value, action.micro_batch.value}}] =
          timeline.end[at];
    }
  }
  for (int rank = 0; rank < program.ranks(); ++rank) {
    std::int64_t before = 0;
    const auto place = static_cast<std::size_t>(rank);
    for (InstructionId at = program.rank_begin[place]; at < program.rank_begin[place + 1]; ++at) {
      EXPECT_LE(timeline.start[at], timeline.end[at]);
      const Action action = program.cell(at).action;
      if (!is_compute(action.kind)) continue;
      EXPECT_GE(timeline.start[at], before);
      before = timeline.end[at];
      if (action.kind == ActionKind::W) continue;
      const bool is_forward = action.kind == ActionKind::F;
      const auto giver = ends.find(
          {is_forward, {action.stage.value + (is_forward ? -1 : 1), action.micro_batch.value}});
      if (giver == ends.end()) continue;
      EXPECT_GE(timeline.start[at], giver->second);
    }
  }
  EXPECT_GT(timeline.makespan_ns, 0);
}

TEST(PipelinedGraph, SaysWhenItsActionsRan) {
  for (const char* name : {"1f1b", "interleaved", "zbvpp"}) {
    SCOPED_TRACE(name);
    const Asked asked = *asked_of(planner::find_schedule(name));
    const OperatorGraph given = pipeline(layered(2, 4, 3, {1, 1}), asked, 4);
    const OperatorGraph graph = completed(given).graph;
    const spmd::PipelineStages stages = spmd::pipeline_stages(graph);
    const Program program = program_of(given, stages, name);
    expect_in_order(program, timeline_of(program, graph, stages, trained(given, name, {}).spans));
  }
}

/// A pipeline with what its stages consist of, and without.
struct InParts {
  Program program, whole;
  CostTable costs, whole_costs;
};

InParts in_parts(const OperatorGraph& graph, const spmd::PipelineStages& stages,
                 std::string_view schedule_name) {
  const auto steps = training_steps(graph, loss_of(graph, "loss"), stages.order_of(graph));
  const Cluster cluster = cluster_preset("local-cpu", 8);
  const auto work = planner::tensor_placement::stage_work(graph, stages, steps, cluster, true);
  Order order = order_of(graph, stages, schedule_name);
  InParts both;
  both.whole = lower(order, {}, {.optimizer = true});
  both.whole_costs =
      planner::tensor_placement::stage_work(graph, stages, steps, cluster, false).costs;
  order.mesh = work.mesh;
  for (const ActionParts& one : work.parts) {
    const bool splits = std::ranges::count(both.whole.code, ActionKind::W, &Instruction::kind) > 0;
    const bool is_whole = one.kind == ActionKind::B;
    if (one.kind == ActionKind::F || is_whole != splits) order.parts.push_back(one);
  }
  both.program = lower(order, {}, {.optimizer = true});
  both.costs = work.costs;
  return both;
}

TEST(PipelinedGraph, HasTheCollectivesOfItsStagesAsPartsThatRun) {
  for (const char* name : {"1f1b", "interleaved", "zb-h1"}) {
    SCOPED_TRACE(name);
    const Asked asked = *asked_of(planner::find_schedule(name));
    const OperatorGraph given = pipeline(layered(2, 4, 4, {2, 2}), asked, 4);
    const OperatorGraph graph = completed(given).graph;
    const spmd::PipelineStages stages = spmd::pipeline_stages(graph);
    const InParts both = in_parts(graph, stages, name);
    EXPECT_EQ(both.program.mesh, (std::vector<MeshAxis>{{"tp", 2}, {"dp", 2}}));
    EXPECT_GT(std::ranges::count(both.program.calls, ActionKind::AllReduce, &Call::kind), 0);

    // Parts of an action are one after the other, so they take what the whole takes.
    const auto ns = sim::simulate(both.program, both.costs).timeline.makespan_ns;
    const auto whole_ns = sim::simulate(both.whole, both.whole_costs).timeline.makespan_ns;
    EXPECT_NEAR(static_cast<double>(ns), static_cast<double>(whole_ns),
                static_cast<double>(both.program.code.size()));

    const auto spans = trained(given, name, {}).spans;
    const Timeline timeline = timeline_of(both.program, graph, stages, spans);
    expect_in_order(both.program, timeline);
    for (const auto& [rank, own] : spans) {
      const RankId pipeline_rank(rank / 4);
      EXPECT_EQ(std::ssize(own.parts),
                std::ranges::count_if(both.program.part_of, [&](const auto& part) {
                  return both.program.rank_of(part.first) == pipeline_rank;
                }));
    }
    for (std::size_t at = 1; at < both.program.part_of.size(); ++at) {
      const InstructionId part = both.program.part_of[at].first;
      EXPECT_LE(timeline.start[part], timeline.end[part]);
      const bool follows = both.program.action_of_part(part - 1) != nullptr;
      if (follows) {
        EXPECT_LE(timeline.end[part - 1], timeline.start[part]);
      }
    }
  }
}

/// Where every process is a stage by itself there is nothing to tell; where meshes differ no group
/// is named.
TEST(PipelinedGraph, HasPartsOnlyWhereMeshesAreAlike) {
  const OperatorGraph alone = completed(pipeline(layered(2, 2, 4, {1, 1}), {}, 2)).graph;
  const InParts both = in_parts(alone, spmd::pipeline_stages(alone), "1f1b");
  EXPECT_TRUE(both.program.mesh.empty());
  EXPECT_TRUE(std::ranges::all_of(both.program.calls,
                                  [](const Call& call) { return call.kind == ActionKind::Part; }));
  Json json = layered(2, 2, 4, {2, 1});
  json["meshes"]["m1"] = {{"shape", {1, 2}}, {"dim_names", {"dp", "tp"}}, {"ranks", {2, 3}}};
  const OperatorGraph unlike = completed(pipeline(json, {}, 2)).graph;
  EXPECT_TRUE(in_parts(unlike, spmd::pipeline_stages(unlike), "1f1b").program.part_of.empty());
}

std::string complaint(const OperatorGraph& given) {
  try {
    (void)spmd::pipeline_stages(completed(given).graph);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(PipelinedGraph, WhatIsNoPipelineIsRefusedByName) {
  Json json = layered(2, 2, 3, {1, 2});
  json["meshes"]["m1"]["ranks"] = {1, 2};
  EXPECT_NE(complaint(pipeline(json, {PartPlacement::OneEach, 1}, 2))
                .find("meshes \"m0\" and \"m1\" share process 1"),
            std::string::npos);
  json = layered(2, 2, 3, {1, 1});
  json["tensors"]["w1"]["annotation"]["mesh"] = "m0";
  json["tensors"]["w0"]["annotation"]["mesh"] = "m1";
  const std::string back = complaint(pipeline(json, {PartPlacement::OneEach, 1}, 2));
  EXPECT_NE(back.find("\"Block_1/up\" is on stage 0 and takes \"h1\" of stage 1"),
            std::string::npos)
      << back;
  json = layered(2, 2, 3, {1, 1});
  json["tensors"]["t0"]["annotation"] = {{"mesh", "m1"}};
  const std::string elsewhere = complaint(pipeline(json, {PartPlacement::OneEach, 1}, 2));
  EXPECT_NE(elsewhere.find("in a pipeline"), std::string::npos) << elsewhere;
  json = layered(2, 2, 3, {1, 1});
  json["operators"][1]["annotation"] = {{"chunk_id", 1}};
  const std::string empty = complaint(pipeline(json, {PartPlacement::OneEach, 1}, 2));
  EXPECT_NE(empty.find("no operator is in chunk 1 on mesh \"m1\""), std::string::npos) << empty;
}

}  // namespace pipelined_graph_test
}  // namespace pipewright::exec::graphs
