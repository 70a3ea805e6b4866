#include "core/plan/strategy.hpp"

#include <algorithm>
#include <array>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"
#include "core/cluster/node_order.hpp"
#include "core/order/comm_policy_json.hpp"
#include "core/order/element_type.hpp"
#include "core/plan/framework_json.hpp"

namespace pipewright {

namespace {

constexpr std::array<std::string_view, 14> kFields{
    "pp_degree",        "dp_degree",       "vpp_degree",     "accumulate_steps",
    "micro_batch_size", "schedule_mode",   "comm_policy",    "enable_send_recv_overlap",
    "memory_limit",     "sharding_degree", "sharding_stage", "unshard_lookahead",
    "recompute",        "stage_replicas"};

/// Of jobs that are estimated (estimated_architecture()).
constexpr std::array<std::string_view, 12> kEstimatedFields{
    "mp_degree",    "cp_degree",        "ep_degree",           "expert_tensor_parallel_size",
    "framework",    "node_order",       "overlap_grad_reduce", "use_sequence_parallel",
    "matmul_dtype", "grad_accum_dtype", "rank_order",          "cp_comm_type"};

/// What others call a field: Megatron-LM (…_model_parallel_size), torchtitan (…_parallel_degree),
/// DeepSpeed, Paddle's sep_degree, and the short names of tables and papers.
struct OtherName {
  std::string_view name, field;
};
constexpr auto kOtherNames =
    std::to_array<OtherName>({{"tp", "mp_degree"},
                              {"tp_degree", "mp_degree"},
                              {"tp_size", "mp_degree"},
                              {"tensor_parallel_size", "mp_degree"},
                              {"tensor_parallel_degree", "mp_degree"},
                              {"tensor_model_parallel_size", "mp_degree"},
                              {"pp", "pp_degree"},
                              {"pp_size", "pp_degree"},
                              {"pipeline_parallel_size", "pp_degree"},
                              {"pipeline_parallel_degree", "pp_degree"},
                              {"pipeline_model_parallel_size", "pp_degree"},
                              {"dp", "dp_degree"},
                              {"dp_size", "dp_degree"},
                              {"data_parallel_size", "dp_degree"},
                              {"data_parallel_degree", "dp_degree"},
                              {"data_parallel_replicate_degree", "dp_degree"},
                              {"cp", "cp_degree"},
                              {"cp_size", "cp_degree"},
                              {"sep_degree", "cp_degree"},
                              {"context_parallel_size", "cp_degree"},
                              {"context_parallel_degree", "cp_degree"},
                              {"ep", "ep_degree"},
                              {"ep_size", "ep_degree"},
                              {"expert_parallel_size", "ep_degree"},
                              {"expert_parallel_degree", "ep_degree"},
                              {"expert_model_parallel_size", "ep_degree"},
                              {"etp", "expert_tensor_parallel_size"},
                              {"expert_tensor_parallel_degree", "expert_tensor_parallel_size"},
                              {"vpp", "vpp_degree"},
                              {"vpp_size", "vpp_degree"},
                              {"virtual_pipeline_model_parallel_size", "vpp_degree"},
                              {"num_virtual_stages_per_pipeline_rank", "vpp_degree"},
                              {"gradient_accumulation_steps", "accumulate_steps"},
                              {"num_microbatches", "accumulate_steps"},
                              {"train_micro_batch_size_per_gpu", "micro_batch_size"},
                              {"pipeline_parallel_microbatch_size", "micro_batch_size"},
                              {"pipeline_parallel_schedule", "schedule_mode"},
                              {"zero_stage", "sharding_stage"},
                              {"sequence_parallel", "use_sequence_parallel"},
                              {"schedule", "schedule_mode"}});

/// Fields of Paddle's pipeline strategy that have no counterpart here.
constexpr std::array<std::string_view, 7> kUnusedFields{
    "vpp_seg_method",    "generation_batch_size", "job_schedule_profiler_start",
    "split_backward",    "program_runtimes",      "job_schedule_profiler_stop",
    "memory_limit_times"};

/// The fields of "strategy" and of "strategy.pipeline" as one set.
class Fields {
 public:
  explicit Fields(const JsonCursor& strategy)
      : outer_(strategy), inner_(strategy.find("pipeline")) {
    std::vector<std::string_view> known(kFields.begin(), kFields.end());
    known.insert(known.end(), kEstimatedFields.begin(), kEstimatedFields.end());
    for (const OtherName& other : kOtherNames) known.push_back(other.name);
    refuse_unused(outer_);
    known.push_back("pipeline");
    outer_.only(known);
    if (inner_) {
      refuse_unused(*inner_);
      known.back() = "enable";
      inner_->only(known);
      check_enable();
    }
  }

  /// By any of its names.
  std::optional<JsonCursor> find(std::string_view key) const {
    std::optional<JsonCursor> value = find_named(key);
    for (const OtherName& other : kOtherNames) {
      if (other.field != key) continue;
      const std::optional<JsonCursor> also = find_named(other.name);
      if (also && value && also->value() != value->value()) {
        throw InputError(also->file(), also->pointer(),
                         "expected " + value->value().dump() + " as at " + value->pointer() +
                             ", found " + also->value().dump() +
                             ": two names for one field; keep one of them");
      }
      if (also) value = also;
    }
    return value;
  }

 private:
  std::optional<JsonCursor> find_named(std::string_view name) const {
    const std::optional<JsonCursor> value = outer_.find(name);
    const std::optional<JsonCursor> inner = inner_ ? inner_->find(name) : std::nullopt;
    if (value && inner) {
      throw InputError(inner->file(), inner->pointer(),
                       "stands at " + value->pointer() + " too; keep one of them");
    }
    return value ? value : inner;
  }

  static void refuse_unused(const JsonCursor& object) {
    for (std::string_view key : kUnusedFields) {
      if (const auto field = object.find(key)) {
        throw InputError(field->file(), field->pointer(),
                         "Paddle has this field, but Pipewright makes no use of it; remove it");
      }
    }
  }

  void check_enable() const {
    const auto enable = inner_->find("enable");
    if (enable && !enable->boolean()) {
      throw InputError(enable->file(), enable->pointer(),
                       "expected true; for a run without a pipeline set \"pp_degree\" to 1");
    }
  }

  JsonCursor outer_;
  std::optional<JsonCursor> inner_;
};

/// "auto", one value, or a list of values to try.
template <class ReadOne>
Choice read_alternatives(const Fields& fields, std::string_view key, ReadOne read_one) {
  const auto value = fields.find(key);
  if (!value || (value->value().is_string() && value->string() == "auto")) {
    return {};
  }
  if (!value->value().is_array()) {
    return {read_one(*value)};
  }
  Choice choice;
  for (const JsonCursor& element : value->elements()) {
    choice.push_back(read_one(element));
  }
  if (choice.empty()) {
    value->fail("\"auto\", a value, or a list with at least one");
  }
  return choice;
}

Choice read_numbers(const Fields& fields, std::string_view key, int most, int least = 1) {
  return read_alternatives(fields, key, [&](const JsonCursor& value) {
    if (!value.value().is_number()) {
      value.fail("\"auto\", a whole number from " + std::to_string(least) + " to " +
                 std::to_string(most) + ", or a list of them");
    }
    return std::to_string(value.integer(least, most));
  });
}

Choice read_flags(const Fields& fields, std::string_view key) {
  return read_alternatives(fields, key, [](const JsonCursor& value) {
    return std::string(value.boolean() ? "true" : "false");
  });
}

Choice read_recomputes(const Fields& fields) {
  return read_alternatives(fields, "recompute", [](const JsonCursor& value) {
    return read_choice<std::string>(
        value,
        {{"none", "none"}, {"selective", "selective"}, {"full", "full"}, {"by_stage", "by_stage"}});
  });
}

/// "auto", the ranks of each stage, or a list of such lists.
std::vector<std::vector<int>> read_stage_replicas(const Fields& fields) {
  constexpr int kMostRanks = 65535;
  const auto value = fields.find("stage_replicas");
  if (!value || (value->value().is_string() && value->string() == "auto")) return {};
  const auto read_counts = [](const JsonCursor& list) {
    std::vector<int> counts;
    int ranks = 0;
    for (const JsonCursor& count : list.elements()) {
      counts.push_back(static_cast<int>(count.integer(1, kMostRanks - ranks)));
      ranks += counts.back();
    }
    if (counts.empty()) list.fail("the number of ranks of each stage, such as [2, 1, 1]");
    return counts;
  };
  if (!value->value().is_array() || value->value().empty())
    value->fail(
        "\"auto\", the number of ranks of each stage, such as [2, 1, 1], or a list of such");
  if (!value->value().front().is_array()) return {read_counts(*value)};
  std::vector<std::vector<int>> all;
  for (const JsonCursor& list : value->elements()) all.push_back(read_counts(list));
  return all;
}

void read_estimated(const Fields& fields, Strategy& strategy) {
  strategy.mp_degree = read_numbers(fields, "mp_degree", kMostDevices);
  strategy.cp_degree = read_numbers(fields, "cp_degree", kMostDevices);
  strategy.cp_comm_type = read_alternatives(fields, "cp_comm_type", [](const JsonCursor& value) {
    return read_choice<std::string>(value, {{"all_gather", "all_gather"}, {"p2p", "p2p"}});
  });
  strategy.ep_degree = read_numbers(fields, "ep_degree", kMostDevices);
  strategy.expert_tensor_parallel_size =
      read_numbers(fields, "expert_tensor_parallel_size", kMostDevices);
  strategy.use_sequence_parallel = read_flags(fields, "use_sequence_parallel");
  strategy.rank_order = read_alternatives(fields, "rank_order", [](const JsonCursor& value) {
    return read_choice<std::string>(
        value, {{"tp-cp-dp-pp", "tp-cp-dp-pp"}, {"tp-cp-pp-dp", "tp-cp-pp-dp"}});
  });
  strategy.node_order = read_alternatives(fields, "node_order", read_name);
  if (const auto overlap = fields.find("overlap_grad_reduce"))
    strategy.overlap_grad_reduce = overlap->boolean();
  if (const auto framework = fields.find("framework"))
    strategy.framework = read_framework(*framework);
  if (const auto type = fields.find("matmul_dtype"))
    strategy.matmul_dtype = read_choice<std::string>(
        *type, {{"bf16", ""}, {"fp8", "fp8"}, {"mxfp8", "mxfp8"}, {"nvfp4", "nvfp4"}});
  if (const auto type = fields.find("grad_accum_dtype")) {
    strategy.grad_accum_dtype =
        full_type_name(read_choice<std::string>(*type, {{"fp32", "fp32"},
                                                        {"bf16", "bf16"},
                                                        {"fp16", "fp16"},
                                                        {"float32", "float32"},
                                                        {"bfloat16", "bfloat16"},
                                                        {"float16", "float16"}}));
  }
}

void read_policy(const Fields& fields, Strategy& strategy) {
  if (const auto policy = fields.find("comm_policy")) {
    strategy.policy = read_comm_policy(*policy);
  }
  if (const auto overlap = fields.find("enable_send_recv_overlap")) {
    if (strategy.policy) {
      throw InputError(overlap->file(), overlap->pointer(),
                       "says how transfers are issued, and so does \"comm_policy\"; keep one");
    }
    // Without overlap Paddle waits for the compute stream before a send and for the send after it:
    // the transfer occupies the compute lane.
    strategy.policy.emplace();
    strategy.policy->issue = overlap->boolean() ? Issue::Stream : Issue::Inline;
  }
}

/// Paddle's sharding times dp: that many replicas, of which as many as sharding_degree says divide
/// one another's state (ZeRO).
void read_sharding(const Fields& fields, Strategy& strategy) {
  strategy.sharding_stage = read_numbers(fields, "sharding_stage", 3, 0);
  if (const auto ahead = fields.find("unshard_lookahead"))
    strategy.unshard_lookahead = static_cast<int>(ahead->integer(0, 65535));
  const auto degree = fields.find("sharding_degree");
  if (!degree) return;
  strategy.sharding_degree = static_cast<int>(degree->integer(1, kMostDevices));
  if (strategy.sharding_degree == 1) return;
  if (strategy.dp_degree.empty()) strategy.dp_degree = {"1"};
  for (std::string& groups : strategy.dp_degree)
    groups = std::to_string(std::stoll(groups) * strategy.sharding_degree);
}

Json numbers_json(const Choice& choice) {
  if (choice.empty()) {
    return "auto";
  }
  Json list = Json::array();
  for (const std::string& value : choice) {
    list.push_back(std::stoll(value));
  }
  return list.size() == 1 ? Json(list.front()) : list;
}

/// What read_sharding() has read.
void add_sharding(const Strategy& strategy, Json& json) {
  Choice groups = strategy.dp_degree;
  for (std::string& replicas : groups)
    replicas = std::to_string(std::stoll(replicas) / strategy.sharding_degree);
  json["dp_degree"] = numbers_json(groups);
  json["sharding_degree"] = strategy.sharding_degree;
  if (!strategy.sharding_stage.empty())
    json["sharding_stage"] = numbers_json(strategy.sharding_stage);
  if (strategy.unshard_lookahead > 0) json["unshard_lookahead"] = strategy.unshard_lookahead;
}

Bytes read_memory_limit(const JsonCursor& value) {
  if (!value.value().is_string()) {
    return read_size(value);
  }
  const Bytes limit = parsed_at(value, [&] { return parse_bytes(value.string(), "memory limit"); });
  if (limit.value < 0) {
    value.fail("a size that is not negative");
  }
  return limit;
}

Json words_json(const Choice& choice) {
  if (choice.empty()) {
    return "auto";
  }
  return choice.size() == 1 ? Json(choice.front()) : Json(choice);
}

void add_estimated(const Strategy& strategy, Json& json) {
  const auto add = [&](const char* key, const Choice& choice, auto write, bool opens = false) {
    if (!choice.empty()) json[key] = write(choice);
    if (choice.empty() && opens) json[key] = "auto";
  };
  add("mp_degree", strategy.mp_degree, numbers_json, strategy.opens_mp_degree);
  add("cp_degree", strategy.cp_degree, numbers_json, strategy.opens_cp_degree);
  add("cp_comm_type", strategy.cp_comm_type, words_json, strategy.opens_cp_comm_type);
  add("ep_degree", strategy.ep_degree, numbers_json, strategy.opens_ep_degree);
  add("expert_tensor_parallel_size", strategy.expert_tensor_parallel_size, numbers_json,
      strategy.opens_expert_tensor_parallel_size);
  add("recompute", strategy.recompute, words_json, strategy.opens_recompute);
  add("rank_order", strategy.rank_order, words_json);
  add("node_order", strategy.node_order, words_json);
  const auto flags_json = [](const Choice& choice) {
    Json list = Json::array();
    for (const std::string& value : choice) list.push_back(value == "true");
    return list.size() == 1 ? Json(list.front()) : list;
  };
  add("use_sequence_parallel", strategy.use_sequence_parallel, flags_json,
      strategy.opens_sequence_parallel);
  if (strategy.overlap_grad_reduce) json["overlap_grad_reduce"] = true;
  if (strategy.framework.name != megatron_core().name)
    json["framework"] = to_json(strategy.framework);
  if (!strategy.matmul_dtype.empty()) json["matmul_dtype"] = strategy.matmul_dtype;
  if (!strategy.grad_accum_dtype.empty()) json["grad_accum_dtype"] = strategy.grad_accum_dtype;
}

/// What formulas do not know is refused; layer by layer sharding_degree asks for a stage of ZeRO.
void require_sharding_fits(const Fields& fields, const Job& job) {
  const Strategy& asked = job.strategy;
  const auto fail = [&](std::string_view key, const std::string& why) {
    const auto value = fields.find(key);
    if (value) throw InputError(value->file(), value->pointer(), why);
  };
  if (!estimated_architecture(job)) {
    const Choice& stages = asked.sharding_stage;
    if (asked.sharding_degree > 1 && std::find(stages.begin(), stages.end(), "0") != stages.end())
      fail("sharding_stage",
           "0 is without sharding, and sharding_degree asks for it: name 1, 2 or 3, or leave out "
           "sharding_degree");
    return;
  }
  if (!asked.cp_comm_type.empty() || asked.opens_cp_comm_type)
    fail(
        "cp_comm_type",
        "this job is estimated by formulas, where the framework says what ranks along cp exchange; "
        "leave it out");
  if (asked.unshard_lookahead > 0)
    fail("unshard_lookahead",
         "this job is estimated by formulas, which know no look-ahead; leave it out");
}

}  // namespace

Strategy read_strategy(const JsonCursor& value) {
  const Fields fields(value);
  Strategy strategy;
  strategy.pp_degree = read_numbers(fields, "pp_degree", 65536);
  strategy.dp_degree = read_numbers(fields, "dp_degree", kMostDevices);
  strategy.vpp_degree = read_numbers(fields, "vpp_degree", 65535);
  strategy.accumulate_steps = read_numbers(fields, "accumulate_steps", 1 << 20);
  strategy.micro_batch_size = read_numbers(fields, "micro_batch_size", 65536);
  strategy.schedule_mode = read_alternatives(fields, "schedule_mode", read_name);
  strategy.stage_replicas = read_stage_replicas(fields);
  read_policy(fields, strategy);
  read_estimated(fields, strategy);
  strategy.recompute = read_recomputes(fields);
  const auto opens = [&](const char* key, const Choice& choice) {
    return choice.empty() && fields.find(key).has_value();
  };
  strategy.opens_recompute = opens("recompute", strategy.recompute);
  strategy.opens_mp_degree = opens("mp_degree", strategy.mp_degree);
  strategy.opens_cp_degree = opens("cp_degree", strategy.cp_degree);
  strategy.opens_cp_comm_type = opens("cp_comm_type", strategy.cp_comm_type);
  strategy.opens_ep_degree = opens("ep_degree", strategy.ep_degree);
  strategy.opens_expert_tensor_parallel_size =
      opens("expert_tensor_parallel_size", strategy.expert_tensor_parallel_size);
  strategy.opens_sequence_parallel = opens("use_sequence_parallel", strategy.use_sequence_parallel);
  read_sharding(fields, strategy);
  if (const auto limit = fields.find("memory_limit")) {
    strategy.memory_limit = read_memory_limit(*limit);
  }
  return strategy;
}

Json to_json(const Strategy& strategy) {
  Json json = Json::object();
  json["pp_degree"] = numbers_json(strategy.pp_degree);
  add_sharding(strategy, json);
  json["vpp_degree"] = numbers_json(strategy.vpp_degree);
  json["accumulate_steps"] = numbers_json(strategy.accumulate_steps);
  json["micro_batch_size"] = numbers_json(strategy.micro_batch_size);
  json["schedule_mode"] = words_json(strategy.schedule_mode);
  if (!strategy.stage_replicas.empty()) json["stage_replicas"] = strategy.stage_replicas;
  if (strategy.policy) {
    json["comm_policy"] = to_json(*strategy.policy);
  }
  json["memory_limit"] = strategy.memory_limit.value;
  add_estimated(strategy, json);
  return json;
}

void require_strategy_fits(const JsonCursor& strategy, const Job& job) {
  const Fields fields(strategy);
  for (const std::string& order : job.strategy.node_order)
    parsed_at(*fields.find("node_order"), [&] { return read_node_order(job.cluster, order); });
  require_sharding_fits(fields, job);
  if (estimated_architecture(job)) return;
  const auto refuse = [&](std::string_view key, const Choice& choice, const Choice& harmless) {
    const auto value = fields.find(key);
    if (!value || choice.empty() || choice == harmless) return;
    throw InputError(
        value->file(), value->pointer(),
        "this job is planned layer by layer, with pipeline, data, tensor, sequence, context and "
        "expert parallelism only; for the other kinds name a transformer of 16-bit numbers "
        "(a preset such as llama3-70b, or an architecture.json), a GPU cluster and no profile");
  };
  const Strategy& asked = job.strategy;
  if (asked.sharding_degree == 1) refuse("sharding_stage", asked.sharding_stage, {"0"});
  refuse("node_order", asked.node_order, {"file"});
  refuse("rank_order", asked.rank_order, {"tp-cp-pp-dp"});
  if (const auto type = fields.find("matmul_dtype"); type && !asked.matmul_dtype.empty()) {
    throw InputError(type->file(), type->pointer(),
                     "this job is planned layer by layer, where products have the model's numbers; "
                     "leave it out, or name a transformer of 16-bit numbers (a preset such as "
                     "llama3-70b, or an architecture.json), a GPU cluster and no profile");
  }
  if (const auto type = fields.find("grad_accum_dtype");
      type && asked.grad_accum_dtype != "float32") {
    throw InputError(type->file(), type->pointer(),
                     "this job is planned layer by layer, where sums of gradients have 32 bits; "
                     "leave it out, or name a transformer of 16-bit numbers (a preset such as "
                     "llama3-70b, or an architecture.json), a GPU cluster and no profile");
  }
  const bool is_said_there = job.training.recompute.kind != RecomputeSpec::Kind::None;
  if (const auto value = fields.find("recompute");
      value && is_said_there && !asked.recompute.empty()) {
    throw InputError(value->file(), value->pointer(),
                     "says what is computed again, and so does \"recompute\" in \"training\"; keep "
                     "one of them");
  }
}

}  // namespace pipewright
