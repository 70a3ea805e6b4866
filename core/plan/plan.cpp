// plan.json: reading, checking that its parts fit each other, and writing (docs/plan-format.md).
#include "core/plan/plan.hpp"

#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"
#include "core/model/architecture_model.hpp"
#include "core/order/comm_policy_json.hpp"
#include "core/order/order_json.hpp"
#include "core/plan/costs_json.hpp"
#include "core/plan/plan_order.hpp"
#include "core/plan/profile.hpp"
#include "core/plan/rank_axes.hpp"
#include "core/plan/ring_json.hpp"
#include "core/plan/training_json.hpp"

namespace pipewright {

namespace {

constexpr int kMostStages = 65535;
constexpr int kMostMicroBatches = 1 << 20;
/// Stages times micro-batches: what a Program can hold, with every transfer.
constexpr std::int64_t kMostCells = std::int64_t{1} << 27;
constexpr int kMostCount = 2'000'000'000;

void read_mesh_part(const JsonCursor& document, Plan& plan) {
  const JsonCursor mesh = document.at("mesh");
  plan.mesh = read_mesh(mesh);
  for (const JsonCursor& device : mesh.at("devices").elements()) {
    if (device.integer(0, kMostDevices - 1) >= plan.cluster.devices()) {
      device.fail("a device of the cluster, 0 to " + std::to_string(plan.cluster.devices() - 1));
    }
  }
}

StagePlan read_stage(const JsonCursor& value, const Plan& plan) {
  value.only({"layers", "rank"});
  const JsonCursor layers = value.at("layers");
  const std::vector<JsonCursor> bounds = layers.elements();
  if (bounds.size() != 2) {
    layers.fail("two numbers, the first layer and the one after the last");
  }
  const int count = static_cast<int>(plan.model.layers.size());
  const int first = plan.stages.empty() ? 0 : plan.stages.back().end_layer;
  StagePlan stage;
  stage.first_layer = read_count(bounds[0], 0, count);
  if (stage.first_layer != first) {
    bounds[0].fail(std::to_string(first) + ", because stages follow each other without a gap");
  }
  if (first == count) {
    bounds[0].fail("no further stage: the " + std::to_string(count) +
                   " layers of the model are used up");
  }
  stage.end_layer = read_count(bounds[1], first + 1, count);
  stage.rank = RankId(value.at("rank").integer(0, plan.ranks() - 1));
  return stage;
}

void require_all_ranks(const JsonCursor& list, const Plan& plan) {
  std::vector<bool> used(static_cast<std::size_t>(plan.ranks()), false);
  for (const StagePlan& stage : plan.stages) {
    used[static_cast<std::size_t>(stage.rank.value)] = true;
  }
  for (std::size_t rank = 0; rank < used.size(); ++rank) {
    if (!used[rank]) {
      list.fail("a stage on every rank of the mesh (rank " + std::to_string(rank) + " has none)");
    }
  }
}

void read_stages(const JsonCursor& list, Plan& plan) {
  for (const JsonCursor& element : list.elements()) {
    if (plan.stages.size() == static_cast<std::size_t>(kMostStages)) {
      list.fail("at most 65535 stages");
    }
    plan.stages.push_back(read_stage(element, plan));
  }
  const int count = static_cast<int>(plan.model.layers.size());
  if (plan.stages.empty() || plan.stages.back().end_layer != count) {
    list.fail("stages that cover all " + std::to_string(count) + " layers of the model");
  }
  // Fewer stages than ranks: some have replicas, and only the order says where.
  if (static_cast<int>(plan.stages.size()) >= plan.ranks()) require_all_ranks(list, plan);
}

/// With replicas chunks · ranks does not give the number of stages. Without an order only the
/// generator knows that number, and its caller compares.
bool may_have_replicas(const Plan& plan) {
  if (plan.schedule.order) return plan.schedule.order->placement.looks_at_micro_batch();
  return static_cast<int>(plan.stages.size()) <= plan.ranks();
}

void read_schedule(const JsonCursor& value, Plan& plan) {
  value.only({"name", "chunks", "parameters", "order"});
  SchedulePlan& schedule = plan.schedule;
  schedule.name = read_name(value.at("name"));
  if (const auto parameters = value.find("parameters")) {
    for (const auto& [key, parameter] : parameters->members()) {
      schedule.parameters[key] = parameter.string();
    }
  }
  const bool custom = schedule.name == "custom";
  if (const auto order = value.find("order")) {
    schedule.order = read_plan_order(*order, plan);
  } else if (custom) {
    value.at("order");
  }
  if (const auto chunks = value.find("chunks")) {
    schedule.chunks = read_count(*chunks, 1, kMostStages);
    const std::int64_t stages = static_cast<std::int64_t>(schedule.chunks) * plan.ranks();
    if (!custom && !may_have_replicas(plan) &&
        stages != static_cast<std::int64_t>(plan.stages.size())) {
      chunks->fail("stages divided by ranks, " + std::to_string(plan.stages.size()) + " / " +
                   std::to_string(plan.ranks()));
    }
  }
}

void read_prediction(const JsonCursor& value, Plan& plan) {
  value.only({"step_ns", "bubble_ratio", "peak_activations", "peak_bytes"});
  Prediction& predicted = plan.predicted;
  predicted.step = Nanoseconds(value.at("step_ns").integer(0, INT64_MAX));
  predicted.bubble_ratio = value.at("bubble_ratio").number(0, 1);
  const JsonCursor activations = value.at("peak_activations");
  const JsonCursor bytes = value.at("peak_bytes");
  for (const JsonCursor& peak : activations.elements()) {
    predicted.peak_activations.push_back(read_count(peak, 0, kMostCount));
  }
  for (const JsonCursor& peak : bytes.elements()) {
    predicted.peak_bytes.push_back(Bytes(peak.integer(0, INT64_MAX)));
  }
  const std::size_t ranks = static_cast<std::size_t>(plan.all_ranks());
  const std::string one_each = "one number for each of the " + std::to_string(ranks) + " ranks";
  if (!predicted.peak_activations.empty() && predicted.peak_activations.size() != ranks) {
    activations.fail(one_each);
  }
  if (!predicted.peak_bytes.empty() && predicted.peak_bytes.size() != ranks) {
    bytes.fail(one_each);
  }
}

TunerRecord read_tuner(const JsonCursor& value) {
  value.only({"seed", "evaluated", "pruned", "reasons", "baseline_step_ns"});
  TunerRecord tuner;
  tuner.seed = read_seed(value.at("seed"));
  tuner.evaluated = read_count(value.at("evaluated"), 0, kMostCount);
  for (const auto& [reason, count] : value.at("pruned").members()) {
    tuner.pruned[reason] = read_count(count, 0, kMostCount);
  }
  for (const JsonCursor& reason : value.at("reasons").elements()) {
    tuner.reasons.push_back(reason.string());
  }
  tuner.baseline_step = Nanoseconds(value.at("baseline_step_ns").integer(0, INT64_MAX));
  return tuner;
}

/// A group of a call has to be one of a rank's axes.
void require_axis(const JsonCursor& part, const Call& call, const std::vector<MeshAxis>& axes) {
  if (span_of(axes, call.group)) return;
  std::string there;
  for (const MeshAxis& axis : axes)
    there += (there.empty() ? "" : ", ") + axis.name + " (" + std::to_string(axis.devices) + ")";
  part.fail("a group in which devices of a rank differ: " +
            (there.empty() ? "this plan has none, each rank is one device" : there));
}

/// What ranks tell one another inside a stage.
void read_inside_stages(const JsonCursor& document, Plan& plan) {
  if (const auto experts = document.find("expert_parallel"))
    plan.expert_parallel = read_count(*experts, 1, static_cast<int>(plan.mesh.devices.size()));
  if (const auto each = document.find("expert_tensor_parallel")) {
    plan.expert_tensor_parallel = read_count(*each, 1, plan.mesh.size("tp"));
    if (plan.expert_tensor_parallel > 1 && plan.expert_tensor_parallel < plan.mesh.size("tp"))
      each->fail("1, whole experts, or tp = " + std::to_string(plan.mesh.size("tp")));
  }
  if (const auto sequence = document.find("sequence_parallel"))
    plan.sequence_parallel = sequence->boolean();
  plan.ring = read_ring(document, plan.mesh.size("cp"));
  const auto lists = document.find("parts");
  if (const auto ranks = document.find("replicas_are_ranks")) {
    plan.replicas_are_ranks = ranks->boolean();
    if (!lists && plan.mesh.size("cp") == 1)
      ranks->fail("parts beside it, or cp: without them replicas are ranks anyway");
  }
  if (!lists) return;
  plan.parts = read_parts(*lists);
  const std::vector<MeshAxis> axes = axes_of(plan);
  for (const ActionParts& action : plan.parts) {
    const JsonCursor list = lists->at(name_of(action));
    if (static_cast<std::size_t>(action.stage.value) >= plan.stages.size())
      list.fail("parts of one of the " + std::to_string(plan.stages.size()) +
                " stages, counted from 0");
    const std::vector<JsonCursor> texts = list.elements();
    for (std::size_t k = 0; k < action.parts.size(); ++k) {
      if (!action.parts[k].is_computation()) require_axis(texts[k], action.parts[k].call, axes);
    }
  }
}

/// The devices of the Program's ranks: of those that stand for several the first.
std::vector<int> devices_of_program(const Plan& plan) {
  if (plan.replicas_are_ranks) return plan.mesh.devices_of_parts();
  return plan.program_replicas() > 1 ? plan.mesh.devices_of_replicas()
                                     : plan.mesh.devices_of_pipeline();
}

/// The parts that a plan may leave out.
void read_optional_parts(const JsonCursor& document, Plan& plan) {
  if (const auto policy = document.find("policy")) {
    plan.policy = read_comm_policy(*policy);
  }
  if (const auto sharding = document.find("sharding_stage")) {
    plan.sharding_stage = read_count(*sharding, 0, 3);
  }
  if (const auto degree = document.find("sharding_degree")) {
    plan.sharding_degree = read_count(*degree, 1, kMostDevices);
    if (plan.replicas() % plan.sharding_degree != 0)
      degree->fail("a divisor of the " + std::to_string(plan.replicas()) +
                   " replicas (dp) of the plan");
  }
  if (const auto ahead = document.find("unshard_lookahead"))
    plan.unshard_lookahead = read_count(*ahead, 0, 65535);
  if (const auto predicted = document.find("predicted")) {
    read_prediction(*predicted, plan);
  }
  if (const auto executable = document.find("executable")) {
    for (const auto& [kind, answer] : executable->members()) {
      plan.executable[kind] = executable_of_text(answer.string());
    }
  }
  if (const auto training = document.find("training")) {
    plan.training = read_training(*training);
    require_recompute_fits(*training, plan.model);
  }
  if (const auto tuner = document.find("tuner")) {
    plan.tuner = read_tuner(*tuner);
  }
}

void read_machines(const JsonCursor& document, Plan& plan) {
  plan.cluster = read_cluster(document.at("cluster"));
  if (const auto line = document.find("cluster_fingerprint")) {
    if (line->string() != fingerprint(plan.cluster)) {
      line->fail("\"" + fingerprint(plan.cluster) +
                 "\", what \"cluster\" gives (change both or leave this out)");
    }
  }
  read_mesh_part(document, plan);
}

Json stages_json(const std::vector<StagePlan>& stages) {
  Json json = Json::array();
  for (const StagePlan& stage : stages) {
    json.push_back({{"layers", Json::array({stage.first_layer, stage.end_layer})},
                    {"rank", stage.rank.value}});
  }
  return json;
}

/// A map of strings or numbers; {} where it is empty (an empty map alone would become null).
template <class Map>
Json map_json(const Map& map) {
  Json json = Json::object();
  for (const auto& [key, value] : map) {
    json[key] = value;
  }
  return json;
}

Json schedule_json(const SchedulePlan& schedule) {
  Json json = {{"name", schedule.name}, {"chunks", schedule.chunks}};
  json["parameters"] = map_json(schedule.parameters);
  if (schedule.order) {
    json["order"] = rows_json(*schedule.order);
  }
  return json;
}

Json prediction_json(const Prediction& predicted) {
  Json bytes = Json::array();
  for (const Bytes peak : predicted.peak_bytes) {
    bytes.push_back(peak.value);
  }
  Json json = {{"step_ns", predicted.step.value}, {"bubble_ratio", predicted.bubble_ratio}};
  json["peak_activations"] = predicted.peak_activations;
  json["peak_bytes"] = std::move(bytes);
  return json;
}

Json tuner_json(const TunerRecord& tuner) {
  Json json = {{"seed", tuner.seed}, {"evaluated", tuner.evaluated}};
  json["pruned"] = map_json(tuner.pruned);
  json["reasons"] = tuner.reasons;
  json["baseline_step_ns"] = tuner.baseline_step.value;
  return json;
}

Json executable_json(const std::map<std::string, Executable>& executable) {
  Json json = Json::object();
  for (const auto& [kind, answer] : executable) json[kind] = to_text(answer);
  return json;
}

constexpr std::string_view kYes = "yes", kNeeds = "needs ";

}  // namespace

std::string to_text(const Executable& executable) {
  if (executable.answer == Executable::Answer::Yes) return std::string(kYes);
  const bool needs = executable.answer == Executable::Answer::IfThere;
  return (needs ? std::string(kNeeds) : "") + executable.why;
}

Executable executable_of_text(std::string_view text) {
  if (text == kYes) return {};
  if (!text.starts_with(kNeeds)) return {Executable::Answer::No, std::string(text)};
  return {Executable::Answer::IfThere, std::string(text.substr(kNeeds.size()))};
}

Plan read_plan(const JsonCursor& document) {
  require_schema(document, "plan", 2);
  document.only({"schema",
                 "model",
                 "cluster",
                 "cluster_fingerprint",
                 "mesh",
                 "micro_batches",
                 "micro_batch_size",
                 "stages",
                 "schedule",
                 "policy",
                 "sharding_stage",
                 "sharding_degree",
                 "unshard_lookahead",
                 "expert_parallel",
                 "expert_tensor_parallel",
                 "sequence_parallel",
                 "cp_comm_type",
                 "parts",
                 "replicas_are_ranks",
                 "costs",
                 "predicted",
                 "executable",
                 "training",
                 "tuner"});
  Plan plan;
  DescribedModel described = read_described_model(document.at("model"));
  plan.model = std::move(described.model);
  plan.architecture = std::move(described.architecture);
  read_machines(document, plan);
  const JsonCursor micro_batches = document.at("micro_batches");
  plan.micro_batches = read_count(micro_batches, 1, kMostMicroBatches);
  plan.micro_batch_size = read_count(document.at("micro_batch_size"), 1, kMostMicroBatchSize);
  read_stages(document.at("stages"), plan);
  read_inside_stages(document, plan);
  if (static_cast<std::int64_t>(plan.stages.size()) * plan.all_micro_batches() > kMostCells) {
    micro_batches.fail("at most 2^27 micro-batches times stages, of all replicas");
  }
  read_schedule(document.at("schedule"), plan);
  const std::vector<int> devices = devices_of_program(plan);
  const int stages = static_cast<int>(plan.stages.size());
  plan.costs = read_costs(document.at("costs"), {stages, plan.cluster, devices, plan.shape()});
  read_optional_parts(document, plan);
  return plan;
}

Json to_json(const Plan& plan) {
  const std::vector<int> devices = devices_of_program(plan);
  const int stages = static_cast<int>(plan.stages.size());
  Json json = {{"schema", plan.parts.empty() ? "pipewright.plan/1" : "pipewright.plan/2"}};
  json["model"] = described_model_json(plan.model, plan.architecture);
  json["cluster"] = to_json(plan.cluster);
  json["cluster_fingerprint"] = fingerprint(plan.cluster);
  json["mesh"] = to_json(plan.mesh);
  json["micro_batches"] = plan.micro_batches;
  json["micro_batch_size"] = plan.micro_batch_size;
  json["stages"] = stages_json(plan.stages);
  json["schedule"] = schedule_json(plan.schedule);
  json["policy"] = to_json(plan.policy);
  json["sharding_stage"] = plan.sharding_stage;
  if (plan.sharding_degree > 0) json["sharding_degree"] = plan.sharding_degree;
  if (plan.unshard_lookahead > 0) json["unshard_lookahead"] = plan.unshard_lookahead;
  if (plan.expert_parallel > 1) json["expert_parallel"] = plan.expert_parallel;
  if (plan.expert_tensor_parallel > 0) json["expert_tensor_parallel"] = plan.expert_tensor_parallel;
  if (plan.sequence_parallel) json["sequence_parallel"] = true;
  if (plan.ring) json["cp_comm_type"] = "p2p";
  if (!plan.parts.empty()) json["parts"] = parts_json(plan.parts);
  if (plan.replicas_are_ranks) json["replicas_are_ranks"] = true;
  json["costs"] = costs_json(plan.costs, {stages, plan.cluster, devices, plan.shape()});
  json["predicted"] = prediction_json(plan.predicted);
  json["executable"] = executable_json(plan.executable);
  json["training"] = to_json(plan.training);
  json["tuner"] = tuner_json(plan.tuner);
  return json;
}

Plan load_plan(const std::string& path) {
  const Json document = parse_json(read_text(path), path);
  return read_plan(JsonCursor(document, path));
}

void save_plan(const Plan& plan, const std::string& path) {
  write_file(path, to_text(to_json(plan)));
}

}  // namespace pipewright
