#include "planner/branches/named_configuration.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/base/comma_list.hpp"
#include "core/base/error.hpp"
#include "core/base/most_devices.hpp"
#include "core/base/suggest.hpp"
#include "core/model/tie.hpp"
#include "planner/base/number_text.hpp"
#include "planner/branches/recompute_by_stage.hpp"
#include "planner/branches/replicated_stages.hpp"
#include "planner/configurations/stage_replicas.hpp"
#include "planner/partition/partition.hpp"

namespace pipewright::planner {
namespace {

const std::vector<std::string_view> kKeys{"schedule",
                                          "tp",
                                          "pp",
                                          "dp",
                                          "cp",
                                          "cp_comm_type",
                                          "ep",
                                          "etp",
                                          "vpp",
                                          "replicas",
                                          "micro_batch_size",
                                          "micro_batches",
                                          "recompute",
                                          "sequence_parallel",
                                          "zero",
                                          "rank_order",
                                          "node_order",
                                          "partition"};

using Values = RequestedValues;

std::optional<int> number_of(const Values& values, const char* key, int least = 1) {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  if (least == 0 && found->second == "0") return 0;
  const auto number = positive_integer(found->second);
  if (!number || *number > kMostDevices) {
    throw InputError(std::string(key) + " is a whole number from " + std::to_string(least) +
                     " to " + std::to_string(kMostDevices) + ", found \"" + found->second + "\"");
  }
  return number;
}

template <class Value, std::size_t n>
void read_word(const Values& values, const char* key,
               const std::array<std::pair<std::string_view, Value>, n>& words, Value& value) {
  const auto found = values.find(key);
  if (found == values.end()) return;
  std::string list;
  for (const auto& [word, meaning] : words) {
    if (word == found->second) {
      value = meaning;
      return;
    }
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  throw InputError(std::string(key) + " is one of " + list + ", found \"" + found->second + "\"");
}

/// One word for all stages, by-stage, or a word for each: "full+full+none".
void read_recompute(const Values& values, SetupRecompute& recompute) {
  recompute.of_stage.clear();  // of another configuration
  const auto found = values.find("recompute");
  if (found == values.end()) return;
  const auto word = [](const std::string& text) {
    LayerRecompute kind = LayerRecompute::None;
    read_word<LayerRecompute, 3>({{"recompute", text}}, "recompute",
                                 {{{"none", LayerRecompute::None},
                                   {"selective", LayerRecompute::Attention},
                                   {"full", LayerRecompute::Whole}}},
                                 kind);
    return kind;
  };
  const std::string& text = found->second;
  recompute = {.by_stage = true};
  if (text == "by-stage" || text == "by_stage") return;
  std::size_t begin = 0, plus = text.find('+');
  if (plus == std::string::npos) {
    recompute = {word(text)};
    return;
  }
  for (; plus != std::string::npos; begin = plus + 1, plus = text.find('+', begin))
    recompute.of_stage.push_back(word(text.substr(begin, plus - begin)));
  recompute.of_stage.push_back(word(text.substr(begin)));
}

/// What is wrong with recompute by stage, for a plan of `stages` stages.
std::optional<std::string> broken_recompute(const Configuration& c, std::size_t stages,
                                            const ConfigurationCosts& costs) {
  const SetupRecompute& recompute = c.parallel.recompute;
  if (!recompute.by_stage) return std::nullopt;
  if (c.schedule->traits.cost_driven && recompute.is_to_choose()) {
    return "The order of " + std::string(c.schedule->name) +
           " follows from the costs, and recompute by stage would choose the costs from the "
           "order: a circle. Name none, selective or full, or one for each stage "
           "(full+full+none).";
  }
  if (!recompute.of_stage.empty() && recompute.of_stage.size() != stages) {
    return "It names " + std::to_string(recompute.of_stage.size()) + " recomputes, and has " +
           std::to_string(stages) + " stages.";
  }
  const auto kinds = costs.recompute_kinds();
  for (const LayerRecompute kind : recompute.of_stage) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
      return "There is no attention here that selective recompute could save.";
  }
  return std::nullopt;
}

/// Where nothing keeps to the limit, what saves the most.
Configuration with_any_recompute(const ConfigurationCosts& costs,
                                 const Configuration& configuration,
                                 std::span<const StagePlan> stages) {
  KnownPeaks none;
  if (const auto chosen =
          with_chosen_recompute(costs, configuration, stages, costs.memory_limit(), none))
    return chosen->configuration;
  Configuration most = configuration;
  most.parallel.recompute.of_stage.assign(stages.size(), costs.recompute_kinds().back());
  return most;
}

/// Ranks of each stage, for a schedule that has such stages; without a pp they say how many ranks
/// there are.
void read_stage_replicas(const Values& values, const Schedule& schedule, ParallelSetup& parallel) {
  const auto found = values.find("replicas");
  if (schedule.layout != Layout::Replicas) {
    if (found != values.end())
      throw InputError("replicas are ranks of each stage, which " + std::string(schedule.name) +
                       " has one of; say schedule=1f1b-rr (dp are replicas of the pipeline)");
    parallel.stage_replicas.clear();
    return;
  }
  if (found != values.end()) {
    const auto counts = read_replicas(found->second);
    if (!counts)
      throw InputError("replicas lists the ranks of each stage, such as 2,1,1, found \"" +
                       found->second + "\"");
    parallel.stage_replicas = *counts;
    if (values.count("pp") == 0)
      parallel.pipeline = std::accumulate(counts->begin(), counts->end(), 0);
    return;
  }
  const auto& as_before = parallel.stage_replicas;
  if (std::accumulate(as_before.begin(), as_before.end(), 0) != parallel.pipeline)
    parallel.stage_replicas = default_replicas(parallel.pipeline);
}

void read_degrees(const Values& values, ParallelSetup& parallel) {
  parallel.tensor = number_of(values, "tp").value_or(parallel.tensor);
  parallel.pipeline = number_of(values, "pp").value_or(parallel.pipeline);
  parallel.context = number_of(values, "cp").value_or(parallel.context);
  parallel.experts = number_of(values, "ep").value_or(parallel.experts);
  const auto expert_tensor = number_of(values, "etp");
  if (expert_tensor) parallel.expert_tensor_degree = *expert_tensor;
  // As many as along tp are said as 0.
  if (parallel.expert_tensor_degree == parallel.tensor) parallel.expert_tensor_degree = 0;
  parallel.chunks = number_of(values, "vpp").value_or(parallel.chunks);
  parallel.micro_batch_size =
      number_of(values, "micro_batch_size").value_or(parallel.micro_batch_size);
  parallel.zero = number_of(values, "zero", 0).value_or(parallel.zero);
  read_recompute(values, parallel.recompute);
  read_word<bool, 2>(values, "cp_comm_type", {{{"p2p", true}, {"all_gather", false}}},
                     parallel.ring);
  if (parallel.context == 1) parallel.ring = false;
  read_word<bool, 2>(values, "sequence_parallel", {{{"on", true}, {"off", false}}},
                     parallel.sequence_parallel);
  read_word<RankOrder, 2>(values, "rank_order",
                          {{{name_of(RankOrder::PipelineOutermost), RankOrder::PipelineOutermost},
                            {name_of(RankOrder::DataOutermost), RankOrder::DataOutermost}}},
                          parallel.order.of_ranks);
  if (parallel.tensor == 1 && values.count("sequence_parallel") == 0)
    parallel.sequence_parallel = false;
}

/// Sets the replicas: those asked for, or, unless they are as elsewhere, what the other degrees
/// leave of the cluster. Returns why they do not fit.
std::string set_replicas(const Values& values, const Job& job, bool as_elsewhere,
                         ParallelSetup& parallel) {
  const std::int64_t devices = job.cluster.devices();
  const std::int64_t of_replica =
      std::int64_t{parallel.tensor} * parallel.pipeline * parallel.context;
  const auto data = number_of(values, "dp");
  if (data) {
    parallel.data = *data;
  } else if (!as_elsewhere) {
    parallel.data = estimated_architecture(job)
                        ? static_cast<int>(std::max<std::int64_t>(1, devices / of_replica))
                        : 1;
  }
  // Too many already without replicas: their product may be no number.
  const std::int64_t needed = of_replica > kMostDevices ? of_replica : of_replica * parallel.data;
  if (needed > kMostDevices && !as_elsewhere)
    throw InputError("a configuration of more than " + std::to_string(kMostDevices) + " devices");
  if (needed <= devices) return "";
  return "It needs " + std::to_string(needed) + " devices, and " + job.cluster.name + " has " +
         std::to_string(devices) + ".";
}

/// Sets the micro-batches: those asked for, or what the batch leaves. Returns why they do not make
/// up the batch.
std::string set_batches(const Values& values, const Job& job, ParallelSetup& parallel) {
  const std::int64_t samples = std::int64_t{parallel.data} * parallel.micro_batch_size;
  const auto left = std::max<std::int64_t>(1, job.global_batch / samples);
  parallel.micro_batches = number_of(values, "micro_batches").value_or(static_cast<int>(left));
  const std::int64_t all = samples * parallel.micro_batches;
  if (all == job.global_batch) return "";
  return "dp " + std::to_string(parallel.data) + " times " +
         std::to_string(parallel.micro_batches) + " micro-batches of " +
         std::to_string(parallel.micro_batch_size) + " are " + std::to_string(all) +
         " samples, and the global batch is " + std::to_string(job.global_batch) + ".";
}

}  // namespace

RequestedValues read_requested(const std::string& text) {
  Values values;
  std::string before;  // the key
  for (const std::string& part : split_at_commas(text)) {
    const std::size_t equals = part.find('=');
    if (before == "replicas" && positive_integer(part)) {  // "replicas=2,1,1"
      values[before] += "," + part;
      continue;
    }
    if (equals == std::string::npos) {
      throw InputError("expected key=value, found \"" + part +
                       "\"; an example: tp=4,pp=8,schedule=1f1b");
    }
    const std::string key = before = part.substr(0, equals);
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      throw InputError("unknown key \"" + key + "\"" + did_you_mean(key, kKeys));
    values[key] = part.substr(equals + 1);
  }
  return values;
}

NamedConfiguration read_configuration(const std::string& text, const Job& job,
                                      const Candidate* otherwise) {
  const Values values = read_requested(text);
  ParallelSetup parallel;
  parallel.overlap_gradients = job.strategy.overlap_grad_reduce;
  if (estimated_architecture(job) && job.strategy.sharding_degree > 1)
    parallel.shards = job.strategy.sharding_degree;
  std::string schedule = "1f1b";
  std::string cut = "balanced";
  if (otherwise != nullptr) {
    parallel = otherwise->parallel;
    schedule = otherwise->schedule;
    cut = otherwise->partition;
  }
  if (values.count("replicas") != 0 && find_schedule(schedule).layout != Layout::Replicas)
    schedule = kReplicatedSchedule;
  if (const auto name = values.find("schedule"); name != values.end()) {
    const Schedule& asked = find_schedule(name->second);
    if (otherwise == nullptr || asked.name != schedule) parallel.chunks = asked.default_chunks;
    schedule = asked.name;
  }
  parallel.holders = holders_in(find_schedule(schedule).layout);
  read_degrees(values, parallel);
  read_stage_replicas(values, find_schedule(schedule), parallel);
  read_word<std::string, 3>(values, "partition",
                            {{{"balanced", "balanced"}, {"even", "even"}, {"by-rank", "by-rank"}}},
                            cut);
  NamedConfiguration named;
  if (const auto order = values.find("node_order"); order != values.end())
    parallel.order.of_nodes = read_node_order(job.cluster, order->second);
  named.too_many_devices = set_replicas(values, job, otherwise != nullptr, parallel);
  // Without replicas or a pipeline there is one order.
  if (parallel.pipeline == 1 || parallel.data == 1)
    parallel.order.of_ranks = RankOrder::PipelineOutermost;
  named.other_batch = set_batches(values, job, parallel);
  named.configuration = {&find_schedule(schedule), parallel, cut == "even", cut == "by-rank"};
  return named;
}

std::string text_of(const Candidate& candidate) {
  const ParallelSetup& parallel = candidate.parallel;
  std::string text = "schedule=" + candidate.schedule;
  const auto add = [&](const char* key, const std::string& value) {
    text += std::string(",") + key + "=" + value;
  };
  const auto add_above = [&](const char* key, int value, int usual) {
    if (value > usual) add(key, std::to_string(value));
  };
  add("tp", std::to_string(parallel.tensor));
  add("pp", std::to_string(parallel.pipeline));
  add("dp", std::to_string(parallel.data));
  add_above("cp", parallel.context, 1);
  if (parallel.ring) add("cp_comm_type", "p2p");
  add_above("ep", parallel.experts, 1);
  if (parallel.expert_tensor() != parallel.tensor)
    add("etp", std::to_string(parallel.expert_tensor()));
  if (parallel.chunks != find_schedule(candidate.schedule).default_chunks)
    add("vpp", std::to_string(parallel.chunks));
  if (!parallel.stage_replicas.empty()) add("replicas", replicas_text(parallel.stage_replicas));
  add("micro_batch_size", std::to_string(parallel.micro_batch_size));
  if (parallel.recompute.is_to_choose()) {
    add("recompute", "by-stage");
  } else if (parallel.recompute.by_stage) {
    std::string kinds;
    for (const LayerRecompute kind : parallel.recompute.of_stage)
      kinds += (kinds.empty() ? "" : "+") + std::string(to_string(kind));
    add("recompute", kinds);
  } else if (parallel.recompute.of_all != LayerRecompute::None) {
    add("recompute", std::string(to_string(parallel.recompute.of_all)));
  }
  if (parallel.sequence_parallel) add("sequence_parallel", "on");
  add_above("zero", parallel.zero, 0);
  if (parallel.order.of_ranks != RankOrder::PipelineOutermost)
    add("rank_order", std::string(name_of(parallel.order.of_ranks)));
  if (!parallel.order.of_nodes.empty()) add("node_order", to_text(parallel.order.of_nodes));
  if (candidate.partition != "balanced") add("partition", candidate.partition);
  return text;
}

std::optional<std::string> broken_rule(const NamedConfiguration& asked, const Job& job,
                                       const ConfigurationCosts& costs) {
  if (!asked.too_many_devices.empty()) return asked.too_many_devices;
  const Configuration& c = asked.configuration;
  ParallelSetup mesh = c.parallel;
  mesh.chunks = 1;  // these are the schedule's affair
  if (const auto reason = costs.refusal(mesh))
    return "A rule forbids it: " + reason->sentence + ".";
  if (!asked.other_batch.empty()) return asked.other_batch;
  if (mixes_speeds(c.schedule->layout, costs.layer_costs(mesh))) {
    return "With " + std::string(c.schedule->name) +
           " a stage is on several ranks, and the ranks here differ in speed: it has no one time. "
           "Take a schedule whose stages have one rank each.";
  }
  if (costs.leaves_out(*c.schedule)) {
    return "Devices or samples are not alike here, and " + std::string(c.schedule->name) +
           " has pairs, stages on several ranks or updates inside the step, which are not looked "
           "at then. Take a schedule without these.";
  }
  const bool divides = c.parallel.tensor * c.parallel.context > 1 && !costs.is_estimated();
  const bool clips = job.training.clip_grad_norm > 0;
  if (c.schedule->traits.asynchronous &&
      (c.parallel.data > 1 || divides || tie_of(job.model) || clips)) {
    return std::string(c.schedule->name) +
           " updates inside the step, which nothing here does with " +
           (c.parallel.data > 1 ? "replicas of the pipeline; say dp=1."
            : divides           ? "layers that ranks divide; say tp=1 and cp=1."
            : clips ? "clipping, which needs the norm of all ranks; set clip_grad_norm to 0."
                    : "a tied head.");
  }
  const ScheduleRequest request = request_of(c.parallel);
  if (const auto reason = refusal_of(*c.schedule, request)) return *reason;
  const int stages = placement_of(*c.schedule, request).stages();
  const int layers = static_cast<int>(job.model.layers.size());
  if (stages > layers) {
    return "It has " + std::to_string(stages) + " stages, and the model has " +
           std::to_string(layers) + " layers; take fewer ranks or chunks.";
  }
  return broken_recompute(c, static_cast<std::size_t>(stages), costs);
}

Branch branch_of(const Configuration& configuration, const ConfigurationCosts& costs) {
  std::vector<StagePlan> stages = stages_of(configuration, costs);
  Branch branch{with_any_recompute(costs, configuration, stages), nullptr, 0};
  branch.bound = bound_of(branch.configuration, stages, costs);
  branch.stages = std::make_shared<const std::vector<StagePlan>>(std::move(stages));
  return branch;
}

}  // namespace pipewright::planner
