// pipewright estimate: from a published transformer to the best ways to divide it, without a
// profile.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/most_devices.hpp"
#include "core/model/architecture_model.hpp"
#include "core/plan/framework_json.hpp"
#include "core/plan/job.hpp"
#include "planner/search/closed_fit.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/named_cluster.hpp"
#include "tools/output/measured_text.hpp"
#include "tools/running/tuning.hpp"

namespace pipewright::tools {
namespace {

using planner::ParallelCandidate;
using planner::ParallelResult;
using planner::ParallelSpace;
using planner::RankBytes;

constexpr int kMostSamplesAStep = 1 << 20;

std::vector<int> numbers_of(const Arguments& arguments, std::string_view flag, int least,
                            int most) {
  std::vector<int> numbers;
  for (const std::string& word : arguments.words(flag)) {
    numbers.push_back(static_cast<int>(parse_integer(word, flag, least, most)));
  }
  return numbers;
}

template <class Value>
std::vector<Value> choices_of(const Arguments& arguments, std::string_view flag,
                              const std::vector<std::pair<std::string_view, Value>>& choices) {
  std::vector<Value> chosen;
  for (const std::string& word : arguments.words(flag)) {
    std::string list;
    bool found = false;
    for (const auto& [name, value] : choices) {
      if (name == word) {
        chosen.push_back(value);
        found = true;
      }
      list += (list.empty() ? "" : ", ") + std::string(name);
    }
    if (!found) {
      throw InputError(std::string(flag) + ": expected some of " + list + ", found \"" + word +
                       "\"");
    }
  }
  return chosen;
}

/// --blocks, which says how many pipeline ranks there are.
void set_blocks(ParallelSpace& space, const std::vector<int>& blocks, const Architecture& model) {
  if (blocks.empty()) return;
  const int all = std::accumulate(blocks.begin(), blocks.end(), 0);
  const int ranks = static_cast<int>(blocks.size());
  if (all != model.blocks) {
    throw InputError("--blocks: expected " + std::to_string(model.blocks) +
                     " blocks on all ranks together, as the model has; found " +
                     std::to_string(all));
  }
  if (!space.pipeline.empty() && space.pipeline != std::vector<int>{ranks}) {
    throw InputError("--blocks names " + std::to_string(ranks) + " pipeline ranks: expected --pp " +
                     std::to_string(ranks) + ", or leave it out");
  }
  space.pipeline = {ranks};
  space.blocks_of_rank = blocks;
}

ParallelSpace space_of(const Arguments& arguments, const Cluster& cluster,
                       const Architecture& model) {
  ParallelSpace space;
  space.devices = cluster.devices();
  const auto batch = arguments.integer("--global-batch", 1, kMostSamplesAStep);
  if (!batch) throw InputError("missing --global-batch: the samples of a step");
  space.global_batch = static_cast<int>(*batch);
  const auto degrees = [&](std::string_view flag) {
    return numbers_of(arguments, flag, 1, kMostDevices);
  };
  space.tensor = degrees("--tp");
  space.pipeline = degrees("--pp");
  space.data = degrees("--dp");
  space.context = degrees("--cp");
  space.experts = degrees("--ep");
  space.expert_tensor = degrees("--etp");
  space.chunks = degrees("--vpp");
  space.micro_batch_size = degrees("--micro-batch-size");
  space.zero = numbers_of(arguments, "--zero", 0, 3);
  space.shards = degrees("--shards");
  space.recompute = choices_of<LayerRecompute>(arguments, "--recompute",
                                               {{"none", LayerRecompute::None},
                                                {"selective", LayerRecompute::Attention},
                                                {"full", LayerRecompute::Whole}});
  space.overlap_gradients = arguments.has("--overlap-gradients");
  space.sequence_parallel =
      choices_of<bool>(arguments, "--sequence-parallel", {{"on", true}, {"off", false}});
  set_blocks(space, numbers_of(arguments, "--blocks", 0, model.blocks), model);
  return space;
}

/// The widths that the formulas need, of a model given layer by layer.
Architecture widths_of(const Model& model, const std::string& name) {
  const auto found = architecture_of(model);
  if (!found) {
    throw InputError(name, "",
                     "is a chain of layers and no transformer of GPT's style, which is what the "
                     "formulas are about (others as an architecture.json); put it into a job.json "
                     "as \"model\" and run pipewright tune, which divides any chain of layers");
  }
  return *found;
}

/// What measured steps are configurations of.
Job job_of(const Arguments& arguments, const Architecture& model, const Cluster& cluster,
           const ParallelSpace& space) {
  Job job;
  job.architecture = model;
  job.cluster = cluster;
  job.global_batch = space.global_batch;
  job.strategy.overlap_grad_reduce = space.overlap_gradients;
  if (const auto file = arguments.text("--measured"))
    job.measured_steps = load_measured_steps(*file);
  return job;
}

/// A preset, an architecture.json or a model.json.
Architecture model_of(const std::string& name, Session& session) {
  if (!name.ends_with(".json")) {
    const auto models = model_preset_names();
    const auto published = architecture_preset_names();
    const auto is_among = [&](const auto& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (is_among(models) && !is_among(published)) return widths_of(model_preset(name), name);
    return architecture_preset(name);
  }
  const Json document = parse_json(read_text(name), name);
  const JsonCursor root(document, name);
  for (const char* kind : {"job", "plan"}) {
    const auto schema = root.find("schema");
    if (!schema || !schema->value().is_string()) break;
    if (schema->string().rfind(std::string("pipewright.") + kind + "/", 0) != 0) continue;
    throw InputError(name, "/schema",
                     std::string("is a ") + kind +
                         "; expected a model.json or an architecture.json" +
                         ": write the object at /model into a file of its own, or run pipewright " +
                         (std::string_view(kind) == "job" ? "tune " : "simulate ") + name);
  }
  const DescribedModel described = read_described_model(root);
  if (root.find("bytes_per_element") && described.model.bytes_per_element != 2) {
    session.note("estimated as it would train on GPUs, in 16 bits; " + name + " says " +
                 std::to_string(described.model.bytes_per_element) + " bytes an element");
  }
  return described.architecture ? *described.architecture : widths_of(described.model, name);
}

/// The model with the adapters that flags ask for, in place of its own.
Architecture with_lora(Architecture model, const Arguments& arguments) {
  const int rank = static_cast<int>(arguments.integer_or("--lora-rank", 1, kMostLoraRank, 0));
  const std::vector<std::string> modules = arguments.words("--lora-modules");
  if (rank > 0) model.lora.rank = rank;
  if (!model.lora.is_used()) {
    if (!modules.empty()) throw InputError("--lora-modules needs --lora-rank, their rank");
    return model;
  }
  for (const std::string& name : modules) {
    try {
      require_lora_module(name);
    } catch (const InputError& error) {
      throw InputError("--lora-modules: " + error.message());
    }
  }
  if (!modules.empty()) model.lora.target_modules = modules;
  if (model.lora.target_modules.empty()) model.lora.target_modules = default_lora_modules();
  check(model);
  return model;
}

/// "1.3 M", of weights.
std::string count_text(double weights) {
  char text[32];
  const bool billions = weights >= 1e9;
  std::snprintf(text, sizeof text, "%.1f %c", weights / (billions ? 1e9 : 1e6),
                billions ? 'B' : 'M');
  return text;
}

Nanoseconds nanoseconds(double seconds) {
  return Nanoseconds(static_cast<std::int64_t>(std::llround(seconds * 1e9)));
}

Bytes bytes(double value) { return Bytes(static_cast<std::int64_t>(std::llround(value))); }

Json fields_of(const ParallelCandidate& candidate) {
  const planner::ParallelSetup& setup = candidate.setup;
  const planner::StepEstimate& estimate = candidate.estimate;
  return {{"tp", setup.tensor},
          {"pp", setup.pipeline},
          {"dp", setup.data},
          {"cp", setup.context},
          {"ep", setup.experts},
          {"etp", setup.expert_tensor()},
          {"vpp", setup.chunks},
          {"micro_batch_size", setup.micro_batch_size},
          {"micro_batches", setup.micro_batches},
          {"recompute", to_string(setup.recompute.of_all)},
          {"sequence_parallel", setup.sequence_parallel},
          {"zero", setup.zero},
          {"shards", setup.zero > 0 ? setup.data / setup.shard_groups() : 1},
          {"step_ns", nanoseconds(estimate.step).value},
          {"pipeline_ns", nanoseconds(estimate.pipeline).value},
          {"busy_ns", nanoseconds(estimate.busy).value},
          {"transfers_ns", nanoseconds(estimate.transfers).value},
          {"gradient_reduction_ns", nanoseconds(estimate.gradient_reduction).value},
          {"tied_reduction_ns", nanoseconds(estimate.tied_reduction).value},
          {"update_ns", nanoseconds(estimate.update).value},
          {"peak_bytes", bytes(candidate.peak_bytes).value},
          {"fullest_rank", candidate.fullest_rank},
          {"reason", candidate.reason}};
}

Json list_of(const std::vector<ParallelCandidate>& candidates) {
  Json list = Json::array();
  for (const ParallelCandidate& candidate : candidates) list.push_back(fields_of(candidate));
  return list;
}

void print_candidates(Session& session, const std::vector<ParallelCandidate>& candidates) {
  using Align = Table::Align;
  Table table(
      {{"#", Align::Right}, {"step", Align::Right}, {"memory", Align::Right}, {"configuration"}});
  int place = 0;
  for (const ParallelCandidate& candidate : candidates) {
    ++place;
    table.add({std::to_string(place), format_duration(nanoseconds(candidate.estimate.step)),
               format_bytes(bytes(candidate.peak_bytes)), describe(candidate.setup)},
              place == 1 ? Ink::Green : Ink::Plain);
  }
  session.print(table.text(session.terminal()));
}

/// Where the best one's time and memory go.
void print_parts(Session& session, const Architecture& model, const FrameworkTraits& framework,
                 const ParallelCandidate& best) {
  const auto line = [&](const std::string& text) {
    session.print(wrapped(text, session.terminal().width, 0));
  };
  if (model.lora.is_used()) {
    std::string modules;
    for (const std::string& name : model.lora.target_modules)
      modules += (modules.empty() ? "" : ", ") + name;
    line("trains " + count_text(trained_parameters(model)) + " weights, LoRA of rank " +
         std::to_string(model.lora.rank) + " on " + modules + "; " + count_text(parameters(model)) +
         " are frozen");
  }
  const planner::StepEstimate& estimate = best.estimate;
  const auto time = [](double seconds) { return format_duration(nanoseconds(seconds)); };
  const double waiting = estimate.pipeline - estimate.busy - estimate.transfers;
  line("time: busiest rank " + time(estimate.busy) + ", waiting for other stages " +
       time(std::max(0.0, waiting)) + ", messages between stages " + time(estimate.transfers) +
       ", reducing gradients " + time(estimate.gradient_reduction + estimate.tied_reduction) +
       ", update " + time(estimate.update));
  const auto ranks = planner::estimate_memory(model, framework, best.setup);
  const RankBytes& full = ranks[static_cast<std::size_t>(best.fullest_rank)];
  const auto size = [](double value) { return format_bytes(bytes(value)); };
  line("memory of rank " + std::to_string(best.fullest_rank) + ", the fullest: weights " +
       size(full.weights) + ", gradients " + size(full.gradients) + ", optimizer " +
       size(full.optimizer) + ", activations " + size(full.activations) + ", ends " +
       size(full.ends) + ", passing " + size(full.passing) +
       (full.received > 0 ? ", receive buffers " + size(full.received) : "") + "; most of it is " +
       best.reason);
}

void print_certificate(Session& session, const ParallelResult& result, Nanoseconds elapsed) {
  for (const auto& [reason, count] : by_sentence(result.pruned)) {
    session.print(
        wrapped(std::to_string(count) + " left out: " + reason, session.terminal().width, 0));
  }
  session.print(std::to_string(result.estimated) + " of " + std::to_string(result.configurations) +
                " configurations estimated in " + format_duration(elapsed) + "\n");
}

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const FrameworkTraits& known : known_frameworks()) names.push_back(known.name);
  return names;
}

FrameworkTraits named_framework(const std::string& text) {
  const Json name = text;
  return read_framework(JsonCursor(name, "--framework"));
}

int run_estimate(const Arguments& arguments, Session& session) {
  const Architecture model =
      with_lora(model_of(arguments.positionals().front(), session), arguments);
  const Cluster cluster = named_cluster(arguments.text_or("--cluster", "dgx-a100"),
                                        arguments.integer_or("--devices", 1, kMostDevices, 0));
  for (const std::string& text : cluster.assumed) session.note("assumed of the cluster: " + text);
  if (!cluster.slow.empty())
    throw InputError(
        "estimate takes all devices of a kind for alike; leave \"slow\" out of the cluster, or "
        "give a job with it to tune");
  const FrameworkTraits framework = with_products(
      with_gradients(named_framework(arguments.text_or("--framework", megatron_core().name)),
                     arguments.text_or("--grad-accum-dtype", "")),
      arguments.text_or("--matmul-dtype", ""));
  require_products(planner::machine_of(cluster), framework);
  const bool exhaustive = arguments.has("--exhaustive");
  const ParallelSpace space = space_of(arguments, cluster, model);
  const Job job = job_of(arguments, model, cluster, space);
  const planner::MeasuredFit fit = planner::fit_closed_estimate(job, framework, space);
  const auto before = std::chrono::steady_clock::now();
  const ParallelResult result = planner::search_fitted(
      job, framework, space, fit, arguments.integer_or("--top", 1, 1000, 10), exhaustive);
  const Nanoseconds elapsed(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::steady_clock::now() - before)
                                .count());
  if (session.json()) {
    Json fields = {
        {"best", result.ranked.empty() ? Json(nullptr) : fields_of(result.ranked.front())},
        {"ranked", list_of(result.ranked)},
        {"front", list_of(result.front)},
        {"parameters", std::llround(parameters(model))},
        {"trained_parameters", std::llround(trained_parameters(model))},
        {"configurations", result.configurations},
        {"evaluated", result.estimated},
        {"pruned", by_sentence(result.pruned)},
        {"elapsed_ns", elapsed.value}};
    if (!fit.steps.empty()) fields["calibration"] = measured_fields(fit);
    session.print_result(fields);
    return result.ranked.empty() ? kAnswerIsNo : kDone;
  }
  if (!fit.steps.empty()) session.print(measured_text(fit, session.terminal()) + "\n");
  if (!result.ranked.empty()) {
    print_candidates(session, result.ranked);
    print_parts(session, model, framework, result.ranked.front());
    if (exhaustive) {
      session.print("\nless memory for more time:\n");
      print_candidates(session, result.front);
    }
  }
  print_certificate(session, result, elapsed);
  if (!result.ranked.empty()) return kDone;
  session.note("no configuration fits; the reasons are above");
  return kAnswerIsNo;
}

Flag list_flag(std::string_view name, std::string_view argument, std::string_view help) {
  return {.group = "Fixed", .name = name, .argument = argument, .help = help, .repeatable = true};
}

}  // namespace

Command estimate_command() {
  Command command;
  command.name = "estimate";
  command.summary = "rank ways to divide a published transformer, by formulas alone";
  command.description =
      "Every way to divide the model that is not fixed by a flag is estimated from its sizes and "
      "the cluster's rates (docs/cost-model.md; how far that is from measurements: "
      "docs/evidence/accuracy.md), or left out by a rule that cannot leave out a better one. "
      "Nothing is profiled or simulated. Exit status 1: no configuration fits.";
  command.examples = {
      {"estimate gpt3-175b --devices 1024 --global-batch 1536", "on 128 DGX A100"},
      {"estimate llama3-70b --cluster dgx-h100 --devices 64 --global-batch 512 --tp 8 --zero 1",
       "what is fixed is all that is tried"},
      {"estimate llama3-70b --cluster dgx-h100 --devices 8 --global-batch 32 --framework nemo "
       "--lora-rank 16 --lora-modules linear_qkv",
       "LoRA"},
      {"estimate examples/architecture.json --cluster examples/cluster.json --global-batch 256 "
       "--exhaustive --json",
       "with the front of time and memory, for a script"},
  };
  command.positionals = {
      {.name = "MODEL",
       .help = "a preset such as gpt3-175b, llama3-70b or deepseek-v3, an architecture.json, or a "
               "model.json of a transformer",
       .least = 1,
       .most = 1}};
  command.flags = {
      {.group = "Job",
       .name = "--cluster",
       .argument = "NAME",
       .help = "a preset of NVIDIA systems, or a cluster.json (dgx-a100)"},
      {.group = "Job", .name = "--devices", .argument = "N", .help = "of the preset (8)"},
      {.group = "Job", .name = "--global-batch", .argument = "B", .help = "samples of a step"},
      {.group = "Job",
       .name = "--framework",
       .argument = "NAME",
       .help = "whose kernels and memory (megatron-core), or a framework.json of your own",
       .choices = framework_names()},
      {.group = "Job",
       .name = "--matmul-dtype",
       .argument = "TYPE",
       .help = "of products with weights (bf16)",
       .choices = {"bf16", "fp8", "mxfp8", "nvfp4"},
       .checked = true},
      {.group = "Job",
       .name = "--grad-accum-dtype",
       .argument = "TYPE",
       .help = "of the sums of gradients, as they are kept and exchanged (the framework's)",
       .choices = {"fp32", "bf16", "fp16"},
       .checked = true},
      {.group = "Job",
       .name = "--lora-rank",
       .argument = "R",
       .help = "trains adapters of this rank alone, and freezes the model's weights (all are "
               "trained)"},
      {.group = "Job",
       .name = "--lora-modules",
       .argument = "NAME,...",
       .help = "the layers with adapters, by Megatron core's names or Hugging Face's (linear_qkv, "
               "linear_proj, linear_fc1, linear_fc2)",
       .repeatable = true},
      {.group = "Job",
       .name = "--measured",
       .argument = "FILE",
       .help = "fits the estimate to the measured_steps of this file, or of a job.json",
       .is_file = true},
      list_flag("--tp", "N,...", "tensor parallel degrees to try"),
      list_flag("--pp", "N,...", "pipeline parallel degrees"),
      list_flag("--blocks", "N,...",
                "blocks of each pipeline rank, embedding and head aside (equal)"),
      list_flag("--dp", "N,...", "data parallel degrees"),
      list_flag("--cp", "N,...", "context parallel degrees (1)"),
      list_flag("--ep", "N,...", "expert parallel degrees"),
      list_flag("--etp", "N,...", "ranks that divide each expert: 1, or as many as tp (tp)"),
      list_flag("--vpp", "N,...", "stages a rank holds"),
      list_flag("--micro-batch-size", "B,...", "samples of a micro-batch"),
      list_flag("--recompute", "KIND,...", "none, selective, full"),
      list_flag("--sequence-parallel", "ON,...", "on, off"),
      list_flag("--zero", "STAGE,...", "0 to 3"),
      list_flag("--shards", "N,...",
                "replicas that divide one another's state under ZeRO, in groups that each hold all "
                "of it (hybrid sharding; all of them)"),
      {.group = "Job",
       .name = "--overlap-gradients",
       .help = "reduce gradients during the last micro-batch, gather weights during the first"},
      {.group = "Search",
       .name = "--exhaustive",
       .help = "estimate all, and print the front of time and memory"},
      {.group = "Output", .name = "--top", .argument = "K", .help = "rows of the table"},
  };
  command.run = run_estimate;
  return command;
}

}  // namespace pipewright::tools
