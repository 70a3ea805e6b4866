// job.json: reading, checking, writing; and the plan that a job loads.
#include "core/plan/job.hpp"

#include <algorithm>
#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/suggest.hpp"
#include "core/model/architecture_model.hpp"
#include "core/model/difference.hpp"
#include "core/plan/paddle_tuner_job.hpp"
#include "core/plan/profile.hpp"
#include "core/plan/strategy.hpp"
#include "core/plan/training_json.hpp"

namespace pipewright {

namespace {

/// Models given as layers come first. A name that both lists have means the layers, for the
/// executor can train them.
std::vector<std::string_view> described_presets() {
  std::vector<std::string_view> names = model_preset_names();
  for (const std::string_view name : architecture_preset_names()) {
    if (!std::ranges::count(names, name)) names.push_back(name);
  }
  return names;
}

DescribedModel described_preset(const std::string& name) {
  if (std::ranges::count(model_preset_names(), name)) return {model_preset(name), std::nullopt};
  const Architecture architecture = architecture_preset(name);
  return {model_of(architecture), architecture};
}

std::optional<std::int64_t> only_number(const Choice& choice) {
  return choice.size() == 1 ? std::optional(std::stoll(choice.front())) : std::nullopt;
}

/// Where the job leaves no choice, the numbers have to agree.
void check_batch(const JsonCursor& batch, const Job& job) {
  const auto size = only_number(job.strategy.micro_batch_size);
  const auto steps = only_number(job.strategy.accumulate_steps);
  const auto replicas = only_number(job.strategy.dp_degree).value_or(0);  // 0: open
  if (size && steps && replicas == 0 && job.global_batch % (*size * *steps) != 0) {
    batch.fail("a multiple of micro_batch_size times accumulate_steps, " + std::to_string(*size) +
               " * " + std::to_string(*steps) + " = " + std::to_string(*size * *steps) +
               " (dp_degree is the factor)");
  }
  if (size && steps && replicas > 0 && *size * *steps * replicas != job.global_batch) {
    const std::string times = replicas > 1 ? " * " + std::to_string(replicas) : "";
    batch.fail("micro_batch_size times accumulate_steps" +
               std::string(replicas > 1 ? " times dp_degree, " : ", ") + std::to_string(*size) +
               " * " + std::to_string(*steps) + times + " = " +
               std::to_string(*size * *steps * replicas));
  }
  if (replicas > 0 && job.global_batch % replicas != 0) {
    batch.fail("a multiple of dp_degree " + std::to_string(replicas));
  }
  if (size && job.global_batch % *size != 0) {
    batch.fail("a multiple of micro_batch_size " + std::to_string(*size));
  }
  if (steps && job.global_batch % *steps != 0) {
    batch.fail("a multiple of accumulate_steps " + std::to_string(*steps));
  }
}

void read_tuner_fields(const JsonCursor& document, Job& job) {
  if (const auto mode = document.find("auto_mode")) {
    job.auto_mode =
        read_choice<AutoMode>(*mode, {{"full", AutoMode::Full}, {"semi", AutoMode::Semi}});
  }
  if (const auto path = document.find("tuner_load_path")) {
    job.tuner_load_path = read_path(*path);
  }
  if (const auto path = document.find("tuner_save_path")) {
    job.tuner_save_path = read_path(*path);
  }
  if (const auto mode = document.find("tuner_run_mode")) {
    job.has_run_mode = true;
    job.tuner_run_mode =
        read_choice<TunerRunMode>(*mode, {{"tuner_and_run", TunerRunMode::TunerAndRun},
                                          {"tuner_only", TunerRunMode::TunerOnly},
                                          {"run_only", TunerRunMode::RunOnly}});
    if (job.tuner_run_mode == TunerRunMode::RunOnly && job.tuner_load_path.empty()) {
      throw InputError(mode->file(), mode->pointer(),
                       "\"run_only\" runs a saved plan; say which by \"tuner_load_path\"");
    }
  }
}

std::string_view run_mode_name(TunerRunMode mode) {
  switch (mode) {
    case TunerRunMode::TunerAndRun:
      return "tuner_and_run";
    case TunerRunMode::TunerOnly:
      return "tuner_only";
    case TunerRunMode::RunOnly:
      return "run_only";
  }
  throw_bug(__FILE__, __LINE__, "a tuner mode has no name");
}

void assume_16_bits(Job& job) {
  const bool trains_so = job.cluster.device.kind == "cuda" && job.profile_path.empty();
  // With 16 bits the job would be estimated, and the estimate knows only these.
  const bool is_known = job.training.optimizer == "adamw" &&
                        job.training.recompute.kind != RecomputeSpec::Kind::Listed;
  if (!trains_so || !is_known || !architecture_of(job.model)) return;
  job.model.bytes_per_element = 2;
  job.assumes_16_bits = true;
}

void check_tuned_plan(const Job& as_read, const Plan& plan) {
  Job job = as_read;
  // The plan's precision was chosen; the job's may be an assumption.
  if (job.assumes_16_bits) job.model.bytes_per_element = plan.model.bytes_per_element;
  const std::string& path = job.tuner_load_path;
  if (fingerprint(plan.cluster) != fingerprint(job.cluster)) {
    throw MachineError(path + ": this plan was made for another cluster.\n  the plan's: " +
                       fingerprint(plan.cluster) + "\n  the job's:  " + fingerprint(job.cluster) +
                       "\nTune again for this cluster, or name the plan's cluster in the job.");
  }
  const std::string model =
      plan.architecture == job.architecture
          ? model_difference(plan.model, "the plan", job.model, "the job")
          : document_difference(described_model_json(plan.model, plan.architecture), "the plan",
                                described_model_json(job.model, job.architecture), "the job");
  if (!model.empty()) {
    throw InputError(path, "/model",
                     "this plan was made for another model (" + model +
                         "); tune again, or name the plan's model in the job");
  }
  const std::int64_t samples =
      static_cast<std::int64_t>(plan.micro_batches) * plan.micro_batch_size * plan.mesh.size("dp");
  if (samples != job.global_batch) {
    throw InputError(path, "/micro_batches",
                     "this plan trains " + std::to_string(samples) +
                         " samples a step, but the job's global_batch is " +
                         std::to_string(job.global_batch) + "; tune again, or change the job");
  }
}

void read_sample_scales(const JsonCursor& scales, Job& job) {
  constexpr double kLeast = 1e-3, kMost = 1e3;
  for (const JsonCursor& scale : scales.elements())
    job.sample_scales.push_back(scale.number(kLeast, kMost));
  if (job.sample_scales.size() != static_cast<std::size_t>(job.global_batch))
    scales.fail("a number for each of the " + std::to_string(job.global_batch) +
                " samples of global_batch");
}

void read_sample_lengths(const JsonCursor& lengths, Job& job) {
  if (!job.sample_scales.empty()) lengths.fail("sample_scales or sample_lengths, not both");
  for (const JsonCursor& length : lengths.elements())
    job.sample_lengths.push_back(read_count(length, 1, kLongestSample));
  if (job.sample_lengths.size() != static_cast<std::size_t>(job.global_batch))
    lengths.fail("a number for each of the " + std::to_string(job.global_batch) +
                 " samples of global_batch");
}

}  // namespace

Job read_job(const JsonCursor& document) {
  require_schema(document, "job");
  document.only({"schema", "model", "cluster", "global_batch", "strategy", "auto_mode",
                 "tuner_load_path", "tuner_save_path", "tuner_run_mode", "profile_path",
                 "measured_step", "measured_steps", "training", "sample_scales", "sample_lengths"});
  Job job;
  DescribedModel described = read_preset_or_file(document.at("model"), described_presets(),
                                                 read_described_model, described_preset);
  job.model = std::move(described.model);
  job.architecture = std::move(described.architecture);
  job.cluster = read_preset_or_file(document.at("cluster"), cluster_preset_names(), read_cluster,
                                    [](const std::string& name) { return cluster_preset(name); });
  const JsonCursor batch = document.at("global_batch");
  job.global_batch = read_count(batch, 1, kMostGlobalBatch);
  if (const auto scales = document.find("sample_scales")) read_sample_scales(*scales, job);
  if (const auto lengths = document.find("sample_lengths")) read_sample_lengths(*lengths, job);
  const auto strategy = document.find("strategy");
  if (strategy) job.strategy = read_strategy(*strategy);
  read_tuner_fields(document, job);
  if (const auto path = document.find("profile_path")) {
    job.profile_path = read_path(*path);
  }
  if (const auto training = document.find("training")) {
    job.training = read_training(*training);
    require_recompute_fits(*training, job.model);
  }
  if (!described.says_precision) assume_16_bits(job);
  job.measured_steps = read_measured_steps(document);
  if (!job.measured_steps.empty() && !estimated_architecture(job)) {
    const MeasuredStep& first = job.measured_steps.front();
    throw InputError(first.file, first.pointer,
                     "expected none: only a job that is estimated is fitted to measured steps");
  }
  if (job.architecture && job.architecture->lora.is_used() && !estimated_architecture(job)) {
    const JsonCursor model = document.at("model");
    throw InputError(model.file(), model.pointer() + (model.value().is_object() ? "/lora" : ""),
                     "expected none: only a job that is estimated, on GPUs and without a profile, "
                     "can have LoRA");
  }
  if (strategy) {
    require_strategy_fits(*strategy, job);
    check_batch(batch, job);
  }
  return job;
}

Job load_job(const std::string& path) {
  const Json document = parse_json(read_text(path), path);
  const JsonCursor cursor(document, path);
  if (!is_paddle_tuner_job(cursor)) return read_job(cursor);
  const PaddleTunerJob paddle = read_paddle_tuner_job(cursor);
  Job job = read_job(JsonCursor(paddle.job, path));
  job.notes = paddle.notes;
  return job;
}

Json to_json(const Job& job) {
  Json json = {{"schema", "pipewright.job/1"}};
  json["model"] = described_model_json(job.model, job.architecture);
  json["cluster"] = to_json(job.cluster);
  json["global_batch"] = job.global_batch;
  if (!job.sample_lengths.empty())
    json["sample_lengths"] = job.sample_lengths;
  else if (!job.sample_scales.empty())
    json["sample_scales"] = job.sample_scales;
  json["strategy"] = to_json(job.strategy);
  json["auto_mode"] = job.auto_mode == AutoMode::Full ? "full" : "semi";
  json["tuner_load_path"] = job.tuner_load_path;
  json["tuner_save_path"] = job.tuner_save_path;
  json["tuner_run_mode"] = run_mode_name(job.tuner_run_mode);
  json["profile_path"] = job.profile_path;
  put_measured_steps(job.measured_steps, json);
  json["training"] = to_json(job.training);
  return json;
}

void forget_assumed_16_bits(Job& job) {
  if (!job.assumes_16_bits) return;
  job.model.bytes_per_element = Model().bytes_per_element;
  job.assumes_16_bits = false;
}

std::optional<Architecture> estimated_architecture(const Job& job) {
  if (job.cluster.device.kind != "cuda" || !job.profile_path.empty()) return std::nullopt;
  if (job.architecture) return job.architecture;
  return job.model.bytes_per_element == 2 ? architecture_of(job.model) : std::nullopt;
}

Plan load_tuned_plan(const Job& job) {
  const std::string& path = job.tuner_load_path;
  if (path.empty()) {
    throw InputError("the job names no plan; set \"tuner_load_path\" to a plan file");
  }
  const std::string text = read_text(path);
  constexpr char kPickle = '\x80';  // what Paddle's own tuner writes begins with this byte
  if (!text.empty() && text.front() == kPickle) {
    throw InputError(path, "",
                     "this is a Python pickle, as Paddle's tuner writes it; Pipewright "
                     "reads a plan.json: make one with `pipewright tune`");
  }
  const Json document = parse_json(text, path);
  const Plan plan = read_plan(JsonCursor(document, path));
  check_tuned_plan(job, plan);
  return plan;
}

}  // namespace pipewright
