#include "core/plan/paddle_tuner_job.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"
#include "core/cluster/cluster.hpp"
#include "core/model/layers.hpp"

namespace pipewright {
namespace {

constexpr int kMostHidden = 1 << 24, kMostBatch = 1 << 20;
constexpr int kAssumedSequence = 2048;

/// How Paddle's tuner looks for its answer by trials. Ours does not run trials.
constexpr std::array<std::string_view, 17> kOfTrials{"task_limit",      "max_time_per_task",
                                                     "max_search_time", "search_algo",
                                                     "schedule_mode",   "schedule_prior",
                                                     "need_baseline",   "enable_pp_prune",
                                                     "enable_mp_prune", "memory_estimation_tool",
                                                     "buffer",          "configs_csv",
                                                     "run_cmd",         "metric_cfg",
                                                     "best_cfg_dir",    "warmup_time",
                                                     "run_best"};

/// Would change what is searched, so passing them over would give a wrong answer.
constexpr std::array<std::string_view, 3> kRefused{"invalid_strategy", "custom_search_dim",
                                                   "refined_recompute"};

constexpr std::array<std::string_view, 19> kUnderstood{"dp_degree",
                                                       "mp_degree",
                                                       "pp_degree",
                                                       "vpp_degree",
                                                       "cp_degree",
                                                       "ep_degree",
                                                       "sharding_degree",
                                                       "sharding_stage",
                                                       "micro_batch_size",
                                                       "use_recompute",
                                                       "recompute_granularity",
                                                       "use_sequence_parallel",
                                                       "nodes",
                                                       "num_gpus",
                                                       "gpus_per_node",
                                                       "max_mem_usage",
                                                       "model_cfg",
                                                       "cluster",
                                                       "tuner_save_path"};

constexpr std::array<std::string_view, 2> kPassedOn{"tuner_load_path", "tuner_run_mode"};

bool is_auto(const JsonCursor& value) {
  return value.value().is_string() && value.value() == "auto";
}

/// "auto" (nullopt), or the values to try.
template <class Value>
struct Candidates {
  std::optional<std::vector<Value>> values;

  bool open() const { return !values.has_value(); }
  bool only(Value value) const {
    return values && std::all_of(values->begin(), values->end(),
                                 [&](Value candidate) { return candidate == value; });
  }
  bool may_be(Value value) const {
    return !values || std::find(values->begin(), values->end(), value) != values->end();
  }
  Json json() const {
    if (!values) return "auto";
    if (values->size() == 1) return Json(values->front());
    Json list = Json::array();
    for (const Value value : *values) list.push_back(value);
    return list;
  }
};

template <class Value, class ReadOne>
Candidates<Value> read_candidates(const JsonCursor& document, std::string_view key, Value otherwise,
                                  ReadOne read_one) {
  const auto field = document.find(key);
  if (!field) return {std::vector<Value>{otherwise}};
  if (is_auto(*field)) return {};
  std::vector<Value> values;
  if (!field->value().is_array()) {
    values.push_back(read_one(*field));
  } else {
    for (const JsonCursor& element : field->elements()) values.push_back(read_one(element));
  }
  if (values.empty()) field->fail("\"auto\", a value, or a list with at least one");
  return {values};
}

Candidates<int> read_degrees(const JsonCursor& document, std::string_view key, int otherwise,
                             int least, int most) {
  return read_candidates<int>(document, key, otherwise, [&](const JsonCursor& value) {
    if (!value.value().is_number()) {
      value.fail("\"auto\", a whole number from " + std::to_string(least) + " to " +
                 std::to_string(most) + ", or a list of them");
    }
    return read_count(value, least, most);
  });
}

Json model_of(const JsonCursor& config, std::vector<std::string>& notes) {
  config.only({"hidden_size", "global_batch_size", "num_layers", "num_attention_heads",
               "num_key_value_heads", "vocab_size", "seq_length", "max_sequence_length",
               "intermediate_size"});
  const auto width = [&](std::string_view key) {
    return read_count(config.at(key), 1, kMostHidden);
  };
  const int hidden = width("hidden_size");
  const JsonCursor heads = config.at("num_attention_heads");
  if (hidden % read_count(heads, 1, kMostDevices) != 0) {
    heads.fail("a number of heads that divides hidden_size = " + std::to_string(hidden));
  }
  Json model = {{"schema", "pipewright.architecture/1"},
                {"name", "model_cfg"},
                {"hidden", hidden},
                {"layers", read_count(config.at("num_layers"), 1, kMostBlocks)},
                {"heads", read_count(heads, 1, kMostDevices)}};
  if (const auto groups = config.find("num_key_value_heads")) {
    model["kv_heads"] = read_count(*groups, 1, model["heads"].get<int>());
  }
  if (config.find("intermediate_size")) model["ffn"] = width("intermediate_size");
  model["vocabulary"] = width("vocab_size");
  if (config.find("seq_length")) {
    model["sequence"] = width("seq_length");
  } else if (config.find("max_sequence_length")) {
    model["sequence"] = width("max_sequence_length");
  } else {
    model["sequence"] = kAssumedSequence;
    notes.push_back("model_cfg has no seq_length: sequences of " +
                    std::to_string(kAssumedSequence) + " tokens are assumed");
  }
  if (const auto most = config.find("max_sequence_length")) {
    if (read_count(*most, 1, kMostHidden) < model["sequence"].get<int>()) {
      most->fail("at least seq_length");
    }
  }
  return model;
}

/// nodes, gpus_per_node and num_gpus, two of which make the third.
struct Sizes {
  int nodes = 1, gpus_per_node = 8;
};

Sizes sizes_of(const JsonCursor& document) {
  const auto nodes = document.find("nodes"), each = document.find("gpus_per_node"),
             all = document.find("num_gpus");
  Sizes sizes;
  if (nodes) sizes.nodes = read_count(*nodes, 1, kMostDevices);
  if (each) {
    sizes.gpus_per_node = read_count(*each, 1, kMostDevices / sizes.nodes);
  } else if (all) {
    sizes.gpus_per_node = std::max(1, read_count(*all, 1, kMostDevices) / sizes.nodes);
  }
  if (all && !nodes) {
    sizes.nodes = std::max(1, read_count(*all, 1, kMostDevices) / sizes.gpus_per_node);
  }
  const int made = sizes.nodes * sizes.gpus_per_node;
  if (all && read_count(*all, 1, kMostDevices) != made) {
    all->fail("nodes * gpus_per_node = " + std::to_string(made));
  }
  return sizes;
}

Json cluster_of(const JsonCursor& document, std::vector<std::string>& notes) {
  const Sizes sizes = sizes_of(document);
  const auto given = document.find("cluster");
  if (given && (!given->value().is_string() || given->string().ends_with(".json"))) {
    if (document.find("nodes") || document.find("gpus_per_node") || document.find("num_gpus")) {
      notes.push_back(
          "the cluster is that of \"cluster\"; nodes, gpus_per_node and num_gpus are ignored");
    }
    return given->value();
  }
  const std::string preset = given ? given->string() : "dgx-a100";
  Cluster cluster =
      given ? parsed_at(*given, [&] { return cluster_preset(preset); }) : cluster_preset(preset);
  if (!given) {
    notes.push_back("the file names no GPU: " + cluster.device.model +
                    " in DGX nodes are assumed; add \"cluster\", a preset or a file, for others");
  }
  cluster.nodes = sizes.nodes;
  cluster.devices_per_node = sizes.gpus_per_node;
  return to_json(cluster);
}

/// dp_degree and sharding_stage of ours.
void add_replicas(const JsonCursor& document, Json& strategy, std::vector<std::string>& notes) {
  const auto replicas = read_degrees(document, "dp_degree", 1, 1, kMostDevices);
  const auto sharded = read_degrees(document, "sharding_degree", 1, 1, kMostDevices);
  const auto stages = read_degrees(document, "sharding_stage", 1, 1, 3);
  Json stage_list = stages.open() ? Json({1, 2, 3}) : stages.json();
  if (!stage_list.is_array()) stage_list = Json::array({stage_list});
  if (sharded.only(1)) {
    strategy["dp_degree"] = replicas.json();
    strategy["sharding_stage"] = 0;
    return;
  }
  if (replicas.only(1)) {
    strategy["dp_degree"] = sharded.json();
    strategy["sharding_stage"] = stage_list;
    return;
  }
  if (!replicas.may_be(1) && !sharded.may_be(1)) {
    document.at("sharding_degree")
        .fail(
            "1 beside this dp_degree, or dp_degree 1: replicas are either all sharded or not at "
            "all");
  }
  stage_list.insert(stage_list.begin(), 0);
  strategy["sharding_stage"] = stage_list;
  if (replicas.open() || sharded.open()) {
    strategy["dp_degree"] = "auto";
  } else {
    std::vector<int> both = *replicas.values;
    both.insert(both.end(), sharded.values->begin(), sharded.values->end());
    std::sort(both.begin(), both.end());
    both.erase(std::unique(both.begin(), both.end()), both.end());
    strategy["dp_degree"] = both;
  }
  notes.push_back(
      "replicas are tried all sharded or not at all: dp_degree and sharding_degree above 1 "
      "together are not");
}

/// "recompute" of ours from use_recompute and recompute_granularity.
Json recompute_of_fields(const JsonCursor& document, std::vector<std::string>& notes) {
  const auto used = read_candidates<bool>(document, "use_recompute", false,
                                          [](const JsonCursor& value) { return value.boolean(); });
  using Word = std::string_view;
  const auto kinds =
      read_candidates<Word>(document, "recompute_granularity", "full", [](const JsonCursor& value) {
        return read_choice<Word>(value,
                                 {{"full", "full"}, {"core_attn", "selective"}, {"full_attn", ""}});
      });
  Json list = Json::array();
  if (used.may_be(false)) list.push_back("none");
  if (!used.may_be(true)) return "none";
  for (const Word kind : {Word("selective"), Word("full")}) {
    if (kinds.may_be(kind)) list.push_back(kind);
  }
  if (kinds.may_be("")) {
    if (kinds.only("")) {
      document.at("recompute_granularity")
          .fail("full or core_attn: attention with its projections is not recomputed alone here");
    }
    notes.push_back(
        "recompute_granularity full_attn is not tried: attention with its projections "
        "is not recomputed alone here");
  }
  return list.size() == 1 ? list.front() : list;
}

Json strategy_of(const JsonCursor& document, std::vector<std::string>& notes) {
  Json strategy = Json::object();
  for (const std::string_view key :
       {"mp_degree", "pp_degree", "vpp_degree", "cp_degree", "ep_degree"}) {
    strategy[std::string(key)] = read_degrees(document, key, 1, 1, kMostDevices - 1).json();
  }
  strategy["micro_batch_size"] = read_degrees(document, "micro_batch_size", 1, 1, 65536).json();
  add_replicas(document, strategy, notes);
  strategy["recompute"] = recompute_of_fields(document, notes);
  strategy["use_sequence_parallel"] =
      read_candidates<bool>(document, "use_sequence_parallel", false, [](const JsonCursor& value) {
        return value.boolean();
      }).json();
  if (const auto limit = document.find("max_mem_usage")) {
    const double gibibytes = limit->number(0.001, 4096);
    strategy["memory_limit"] =
        static_cast<std::int64_t>(gibibytes * static_cast<double>(kGibibyte));
    notes.push_back("max_mem_usage is read as GiB a GPU");
  }
  return strategy;
}

void check_fields(const JsonCursor& document, std::vector<std::string>& notes) {
  std::vector<std::string_view> known(kUnderstood.begin(), kUnderstood.end());
  known.insert(known.end(), kPassedOn.begin(), kPassedOn.end());
  known.insert(known.end(), kOfTrials.begin(), kOfTrials.end());
  known.insert(known.end(), kRefused.begin(), kRefused.end());
  document.only(known);
  for (const std::string_view key : kRefused) {
    const auto field = document.find(key);
    if (!field || field->value().empty()) continue;
    throw InputError(field->file(), field->pointer(),
                     "Paddle's tuner has this field, but Pipewright cannot keep to it; remove it");
  }
  std::string list;
  for (const std::string_view key : kOfTrials) {
    if (document.find(key)) list += (list.empty() ? "" : ", ") + std::string(key);
  }
  if (!list.empty()) {
    notes.push_back("of no effect, because nothing is launched to try it: " + list);
  }
}

}  // namespace

bool is_paddle_tuner_job(const JsonCursor& document) {
  return document.value().is_object() && document.find("model_cfg") && !document.find("schema");
}

PaddleTunerJob read_paddle_tuner_job(const JsonCursor& document) {
  PaddleTunerJob result;
  check_fields(document, result.notes);
  const JsonCursor config = document.at("model_cfg");
  const JsonCursor batch = config.at("global_batch_size");
  if (is_auto(batch)) batch.fail("the samples of a step; Pipewright does not choose them");
  result.job = {{"schema", "pipewright.job/1"},
                {"model", model_of(config, result.notes)},
                {"cluster", cluster_of(document, result.notes)},
                {"global_batch", read_count(batch, 1, kMostBatch)},
                {"strategy", strategy_of(document, result.notes)}};
  for (const std::string_view key : {"tuner_load_path", "tuner_save_path", "tuner_run_mode"}) {
    if (const auto field = document.find(key)) {
      result.job[std::string(key)] = field->value();
    }
  }
  return result;
}

}  // namespace pipewright
