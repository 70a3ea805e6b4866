#include "tests/support/other_tools_files.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

namespace pipewright::test {
namespace {

bool is_whole(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return std::isdigit(c) != 0; });
}

/// The number after a '*' at `at`, which is moved past it; 1 where there is no '*'.
int repeats_at(const std::string& text, std::size_t& at, Problems& problems) {
  if (at >= text.size() || text[at] != '*') return 1;
  std::size_t end = at + 1;
  while (end < text.size() && std::isdigit(text[end]) != 0) ++end;
  const std::string number = text.substr(at + 1, end - at - 1);
  at = end;
  if (number.empty() || number.size() > 4) {
    problems.push_back("no number behind *");
    return 1;
  }
  return std::stoi(number);
}

/// Letters and |, without groups and repeats.
std::string unrolled(const std::string& text, bool in_group, Problems& problems) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::string unit(1, text[at++]);
    if (unit == "(") {
      const std::size_t end = text.find(')', at);
      if (in_group || end == std::string::npos) {
        problems.push_back("a ( without ), or within another");
        return result;
      }
      unit = unrolled(text.substr(at, end - at), true, problems);
      at = end + 1;
      if (at >= text.size() || text[at] != '*') problems.push_back("a group without *n");
    } else if (std::string("EtmL|").find(unit) == std::string::npos) {
      problems.push_back("unknown letter " + unit);
    }
    for (int times = repeats_at(text, at, problems); times > 0; --times) result += unit;
  }
  return result;
}

/// Words of a line as bash splits them, with single quotes.
std::vector<std::string> words_of(const std::string& line, Problems& problems) {
  std::vector<std::string> words;
  bool quoted = false, open = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
      if (!open) words.emplace_back();
      open = true;
    } else if (c == ' ' && !quoted) {
      open = false;
    } else {
      if (!quoted && std::string("*?[]()|&;<>$`\"\\").find(c) != std::string::npos) {
        problems.push_back("bash would read a bare " + std::string(1, c));
      }
      if (!open) words.emplace_back();
      words.back() += c;
      open = true;
    }
  }
  if (quoted) problems.push_back("a quote that is not closed");
  return words;
}

// From megatron/training/arguments.py's help and the user guide. 'n' whole number, 'f' float, 's'
// text, '-' a switch, otherwise the choices.
const std::map<std::string, std::string>& megatron_arguments() {
  static const std::map<std::string, std::string> table = {
      {"--tensor-model-parallel-size", "n"},
      {"--pipeline-model-parallel-size", "n"},
      {"--context-parallel-size", "n"},
      {"--cp-comm-type", "p2p a2a all_gather a2a+p2p"},
      {"--expert-model-parallel-size", "n"},
      {"--expert-tensor-parallel-size", "n"},
      {"--sequence-parallel", "-"},
      {"--pipeline-model-parallel-layout", "s"},
      {"--microbatch-group-size-per-virtual-pipeline-stage", "n"},
      {"--use-tp-pp-dp-mapping", "-"},
      {"--use-distributed-optimizer", "-"},
      {"--use-megatron-fsdp", "-"},
      {"--data-parallel-sharding-strategy", "no_shard optim optim_grads optim_grads_params"},
      {"--no-gradient-accumulation-fusion", "-"},
      {"--ckpt-format", "torch torch_dist fsdp_dtensor"},
      {"--recompute-granularity", "full selective"},
      {"--recompute-method", "uniform block"},
      {"--recompute-num-layers", "n"},
      {"--micro-batch-size", "n"},
      {"--global-batch-size", "n"},
      {"--train-iters", "n"},
      {"--optimizer", "adam sgd"},
      {"--lr", "f"},
      {"--clip-grad", "f"},
      {"--bf16", "-"},
      {"--num-layers", "n"},
      {"--hidden-size", "n"},
      {"--ffn-hidden-size", "n"},
      {"--num-attention-heads", "n"},
      {"--group-query-attention", "-"},
      {"--num-query-groups", "n"},
      {"--kv-channels", "n"},
      {"--multi-latent-attention", "-"},
      {"--q-lora-rank", "n"},
      {"--kv-lora-rank", "n"},
      {"--qk-head-dim", "n"},
      {"--qk-pos-emb-head-dim", "n"},
      {"--v-head-dim", "n"},
      {"--num-experts", "n"},
      {"--moe-router-topk", "n"},
      {"--moe-ffn-hidden-size", "n"},
      {"--moe-shared-expert-intermediate-size", "n"},
      {"--moe-layer-freq", "s"},
      {"--moe-latent-size", "n"},
      {"--window-size", "s"},
      {"--window-attn-skip-freq", "n"},
      {"--is-hybrid-model", "-"},
      {"--hybrid-override-pattern", "s"},
      {"--mamba-num-heads", "n"},
      {"--mamba-head-dim", "n"},
      {"--mamba-state-dim", "n"},
      {"--mamba-num-groups", "n"},
      {"--mtp-num-layers", "n"},
      {"--seq-length", "n"},
      {"--max-position-embeddings", "n"},
      {"--position-embedding-type", "learned_absolute rope none"},
      {"--swiglu", "-"},
      {"--disable-bias-linear", "-"},
      {"--normalization", "LayerNorm RMSNorm"},
      {"--untie-embeddings-and-output-weights", "-"}};
  return table;
}

bool fits(const std::string& value, const std::string& kind) {
  if (kind == "s") return !value.empty();
  if (kind == "n") return is_whole(value);
  if (kind == "f") {
    char* end = nullptr;
    std::strtod(value.c_str(), &end);
    return !value.empty() && *end == '\0';
  }
  std::istringstream choices(kind);
  for (std::string choice; choices >> choice;) {
    if (choice == value) return true;
  }
  return false;
}

/// 'n' whole number, 'f' any number, 'b' boolean, 'c' list of whole numbers, 'o' object, 's' any
/// string, otherwise the strings to choose from.
bool fits(const Json& value, const std::string& kind) {
  if (kind == "n") return value.is_number_integer() && value >= 0;
  if (kind == "f") return value.is_number();
  if (kind == "b") return value.is_boolean();
  if (kind == "c") {  // candidates
    return value.is_array() && !value.empty() &&
           std::all_of(value.begin(), value.end(),
                       [](const Json& one) { return one.is_number_integer() && one > 0; });
  }
  if (kind == "o") return value.is_object();
  return value.is_string() && (kind == "s" || fits(value.get<std::string>(), kind));
}

using Kinds = std::map<std::string, std::string>;

void check_keys(const Json& object, const std::string& place, const Kinds& kinds,
                Problems& problems) {
  if (!object.is_object()) {
    problems.push_back(place + " is no object");
    return;
  }
  for (const auto& [key, value] : object.items()) {
    const auto kind = kinds.find(key);
    if (kind == kinds.end()) {
      problems.push_back(place + " has no field " + key);
    } else if (!fits(value, kind->second)) {
      problems.push_back(place + "." + key + " cannot be " + value.dump());
    }
  }
}

// torchtitan/config/configs.py at 0.3. 'l': a word for each list, its names with commas between.
const std::map<std::string, std::string>& torchtitan_fields() {
  static const std::map<std::string, std::string> fields = {
      {"--module", "s"},
      {"--config", "s"},
      {"--training.local_batch_size", "n"},
      {"--training.global_batch_size", "n"},
      {"--training.seq_len", "n"},
      {"--training.steps", "n"},
      {"--training.max_norm", "f"},
      {"--training.mixed_precision_param", "bfloat16 float32"},
      {"--parallelism.data_parallel_replicate_degree", "n"},
      {"--parallelism.data_parallel_shard_degree", "n"},
      {"--parallelism.fsdp_reshard_after_forward", "default always never"},
      {"--parallelism.tensor_parallel_degree", "n"},
      {"--parallelism.no-enable-sequence-parallel", "-"},
      {"--training.disable_cuda_graphs", "-"},
      {"--parallelism.pipeline_parallel_degree", "n"},
      {"--parallelism.module_fqns_per_model_part", "l"},
      {"--parallelism.pipeline_parallel_schedule",
       "1F1B GPipe Interleaved1F1B LoopedBFS InterleavedZeroBubble ZBVZeroBubble DualPipeV "
       "PipelineScheduleSingle PipelineScheduleMulti _PipelineScheduleRuntime"},
      {"--parallelism.pipeline_parallel_schedule_csv", "s"},
      {"--parallelism.pipeline_parallel_microbatch_size", "n"},
      {"--parallelism.context_parallel_degree", "n"},
      {"--parallelism.expert_parallel_degree", "n"}};
  return fields;
}

Json lists_of(const std::vector<std::string>& words) {
  Json lists = Json::array();
  for (std::size_t i = 1; i < words.size(); ++i) {
    Json& list = lists.emplace_back(Json::array());
    std::istringstream names(words[i]);
    for (std::string name; std::getline(names, name, ',');) list.push_back(name);
  }
  return lists;
}

Json value_of(const std::vector<std::string>& words, const std::string& kind) {
  if (kind == "-") return true;
  if (kind == "l") return lists_of(words);
  return kind == "n" || kind == "f" ? Json::parse(words[1]) : Json(words[1]);
}

}  // namespace

std::vector<std::string> read_megatron_layout(const std::string& layout, Problems& problems) {
  std::string text = layout;
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  std::vector<std::string> stages(1);
  for (const char c : unrolled(text, false, problems)) {
    if (c == '|') {
      stages.emplace_back();
    } else {
      stages.back() += c;
    }
  }
  std::string all;
  for (const std::string& stage : stages) all += stage;
  if (all.find('E') != 0 || all.rfind('E') != 0) problems.push_back("E has to be first, once");
  if (all.find('L') + 1 != all.size()) problems.push_back("L has to be last, once");
  return stages;
}

std::map<std::string, std::string> read_megatron_flags(const std::string& text,
                                                       Problems& problems) {
  std::map<std::string, std::string> flags;
  std::istringstream lines(text);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    if (line.ends_with("=(") || line == ")") {
      if (inside == line.ends_with("=(")) problems.push_back("arrays do not nest: " + line);
      inside = line.ends_with("=(");
      continue;
    }
    const auto words = words_of(line, problems);
    const auto kind = words.empty() ? megatron_arguments().end()  //
                                    : megatron_arguments().find(words.front());
    if (!inside || kind == megatron_arguments().end()) {
      problems.push_back("no flag of Megatron-LM: " + line);
    } else if (words.size() != (kind->second == "-" ? 1U : 2U) ||
               (words.size() == 2 && !fits(words[1], kind->second))) {
      problems.push_back("not as its help says: " + line);
    } else if (!flags.emplace(words[0], words.size() == 2 ? words[1] : "").second) {
      problems.push_back("twice: " + line);
    }
  }
  if (inside) problems.push_back("an array that is not closed");
  return flags;
}

std::map<std::string, Json> read_torchtitan_flags(const std::string& text, Problems& problems) {
  std::map<std::string, Json> values;
  std::istringstream lines(text);
  const std::string policy = "activation_checkpoint:";
  bool inside = false, ended = false, in_list = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    if (line == "TITAN_ARGS=(" || line == ")") {
      inside = line != ")";
      continue;
    }
    const auto words = words_of(line, problems);
    if (!inside || ended || words.empty()) {
      problems.push_back("outside of the flags: " + line);
    } else if (words.size() == 1 && words[0].starts_with(policy)) {
      values["activation_checkpoint"] = words[0].substr(policy.size());
      if (!fits(words[0].substr(policy.size()), "selective full memory-budget none"))
        problems.push_back("no policy: " + line);
      if (in_list) problems.push_back("the list before it takes " + line);
      ended = true;
    } else if (const auto field = torchtitan_fields().find(words[0]);
               field == torchtitan_fields().end()) {
      problems.push_back("no field of torchtitan: " + line);
    } else if (const std::string& kind = field->second;
               kind == "-" ? words.size() != 1
                           : kind != "l" && (words.size() != 2 || !fits(words[1], kind))) {
      problems.push_back("not of its type: " + line);
    } else if (!values.emplace(words[0].substr(2), value_of(words, kind)).second) {
      problems.push_back("twice: " + line);
    } else {
      in_list = kind == "l";
    }
  }
  if (inside || !ended) problems.push_back("no end of the flags");
  return values;
}

Problems problems_of_paddle_strategy(const Json& document) {
  Problems problems;
  check_keys(document, "Strategy",
             {{"pipeline", "o"},
              {"sharding", "o"},
              {"recompute", "o"},
              {"gradient_merge", "o"},
              {"amp", "o"},
              {"hybrid_configs", "o"}},
             problems);
  const Json none = Json::object();
  check_keys(document.value("pipeline", none), "pipeline",
             {{"enable", "b"},
              {"schedule_mode", "FThenB 1F1B Eager1F1B VPP ZBH1 ZBVPP"},
              {"pp_degree", "n"},
              {"vpp_degree", "n"},
              {"vpp_seg_method", "s"},
              {"micro_batch_size", "n"},
              {"accumulate_steps", "n"},
              {"split_backward", "b"}},
             problems);
  check_keys(document.value("sharding", none), "sharding",
             {{"enable", "b"}, {"stage", "n"}, {"degree", "n"}}, problems);
  check_keys(document.value("recompute", none), "recompute", {{"enable", "b"}}, problems);
  check_keys(document.value("gradient_merge", none), "gradient_merge",
             {{"enable", "b"}, {"k_steps", "n"}, {"avg", "b"}}, problems);
  check_keys(document.value("amp", none), "amp",
             {{"enable", "b"}, {"dtype", "float16 bfloat16"}, {"level", "o1 o2 o3"}}, problems);
  check_keys(document.value("hybrid_configs", none), "hybrid_configs",
             {{"dp_degree", "n"},
              {"mp_degree", "n"},
              {"pp_degree", "n"},
              {"sharding_degree", "n"},
              {"sep_degree", "n"}},
             problems);
  return problems;
}

Problems problems_of_paddle_tuner_job(const Json& document) {
  Problems problems;
  check_keys(document, "auto_tuner",
             {{"dp_degree", "c"},
              {"mp_degree", "c"},
              {"pp_degree", "c"},
              {"vpp_degree", "c"},
              {"sharding_degree", "c"},
              {"sharding_stage", "c"},
              {"micro_batch_size", "c"},
              {"use_recompute", "b"},
              {"recompute_granularity", "full full_attn core_attn"},
              {"use_sequence_parallel", "b"},
              {"task_limit", "n"},
              {"enable_pp_prune", "b"},
              {"enable_mp_prune", "b"},
              {"search_algo", "o"},
              {"nodes", "n"},
              {"gpus_per_node", "n"},
              {"num_gpus", "n"},
              {"model_cfg", "o"}},
             problems);
  check_keys(document.at("model_cfg"), "model_cfg",
             {{"hidden_size", "n"},
              {"global_batch_size", "n"},
              {"num_layers", "n"},
              {"num_attention_heads", "n"},
              {"vocab_size", "n"},
              {"seq_length", "n"},
              {"max_sequence_length", "n"},
              {"intermediate_size", "n"}},
             problems);
  // What prune.py drops: degrees that do not make num_gpus, sharding beside a pipeline but of stage
  // 1, blocks that the stages do not divide, no recomputation but of granularity full.
  const auto degree = [&](const char* key) {
    const Json& value = document.at(key);
    return value.is_array() ? value.at(0).get<int>() : value.get<int>();
  };
  if (document.at("model_cfg").at("num_layers").get<int>() %
          (degree("pp_degree") * degree("vpp_degree")) !=
      0) {
    problems.push_back("the stages do not divide num_layers");
  }
  if (!document.at("use_recompute").get<bool>() &&
      document.value("recompute_granularity", "") != "full") {
    problems.push_back("no recomputation, and its granularity is not full");
  }
  if (degree("dp_degree") * degree("mp_degree") * degree("pp_degree") * degree("sharding_degree") !=
      degree("num_gpus")) {
    problems.push_back("the degrees do not make num_gpus");
  }
  if (degree("num_gpus") > degree("nodes") * degree("gpus_per_node")) {
    problems.push_back("more GPUs than the nodes have");
  }
  if (degree("pp_degree") != 1 && degree("sharding_stage") != 1) {
    problems.push_back("sharding stage with a pipeline");
  }
  return problems;
}

Problems problems_of_deepspeed(const Json& document, int data_parallel_ranks) {
  Problems problems;
  check_keys(document, "config",
             {{"pipewright", "o"},
              {"train_batch_size", "n"},
              {"train_micro_batch_size_per_gpu", "n"},
              {"gradient_accumulation_steps", "n"},
              {"zero_optimization", "o"},
              {"pipeline", "o"},
              {"tensor_parallel", "o"},
              {"optimizer", "o"},
              {"zero_allow_untested_optimizer", "b"},
              {"gradient_clipping", "f"},
              {"bf16", "o"}},
             problems);
  const Json none = Json::object();
  check_keys(document.at("zero_optimization"), "zero_optimization", {{"stage", "n"}}, problems);
  check_keys(document.value("pipeline", none), "pipeline",
             {{"stages", "n"}, {"activation_checkpoint_interval", "n"}}, problems);
  check_keys(document.value("tensor_parallel", none), "tensor_parallel", {{"autotp_size", "n"}},
             problems);
  check_keys(document.value("bf16", none), "bf16", {{"enabled", "b"}}, problems);
  check_keys(document.at("optimizer"), "optimizer", {{"type", "Adam AdamW SGD"}, {"params", "o"}},
             problems);
  const auto number = [&](const char* key) { return document.at(key).get<int>(); };
  // Ranks along tp are counted too.
  const int divided = document.contains("tensor_parallel")
                          ? document["tensor_parallel"].at("autotp_size").get<int>()
                          : 1;
  const int batch = number("train_micro_batch_size_per_gpu") *
                    number("gradient_accumulation_steps") * data_parallel_ranks * divided;
  if (document.value("train_batch_size", batch) != batch)
    problems.push_back("train_batch_size is not the product that the documentation asks for");
  if (document["optimizer"]["type"] == "SGD" && document["zero_optimization"]["stage"] > 0 &&
      !document.value("zero_allow_untested_optimizer", false)) {
    problems.push_back("ZeRO takes no optimizer but DeepSpeed's own, unless told so");
  }
  if (document.contains("pipeline") && document["zero_optimization"]["stage"] > 1) {
    problems.push_back("ZeRO 2 and 3 are incompatible with pipeline parallelism");
  }
  return problems;
}

}  // namespace pipewright::test
