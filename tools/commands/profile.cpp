// pipewright profile: what this machine costs, measured.
#include "exec/profile/profile.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/comma_list.hpp"
#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "exec/devices/cuda/module.hpp"
#include "exec/devices/cuda/profile.hpp"
#include "exec/devices/cuda/trainable_layers.hpp"
#include "planner/base/cores.hpp"
#include "planner/configurations/requested_divisions.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/running/cuda_flags.hpp"
#include "tools/running/data_flags.hpp"
#include "tools/running/measuring.hpp"

namespace pipewright::tools {
namespace {

constexpr int kMostMicroBatch = 65536, kMostReplicas = 1024;

/// What is profiled: a model, and the machine it is for.
struct Target {
  Model model;
  Cluster cluster;
  TrainingSpec training;
  int global_batch = 16;
  std::vector<StageDivision> divisions;  // that a job asks for
  std::vector<int> replicas = {1};       // and pipelines beside one another
  std::string job = "job.json";          // its file, or what one may be called
};

Target target_from(const std::string& what) {
  Target target;
  if (!what.ends_with(".json") && what.find('/') == what.npos) {
    target.model = model_preset(what);
    target.cluster = this_machine();
    return target;
  }
  const Json document = parse_json(read_text(what), what);
  const JsonCursor root(document, what);
  const auto schema = root.find("schema");
  const bool is_job =
      schema && schema->value().is_string() && schema->string().rfind("pipewright.job/", 0) == 0;
  if (is_job) {
    Job job = read_job(root);
    std::vector<StageDivision> divisions = planner::divisions_of(job);
    std::vector<int> replicas = planner::replicas_to_measure(job);
    return {std::move(job.model),
            std::move(job.cluster),
            std::move(job.training),
            job.global_batch,
            std::move(divisions),
            std::move(replicas),
            what};
  }
  target.model = read_model(root);
  target.cluster = this_machine();
  return target;
}

/// Ascending, each once.
std::vector<int> numbers_from(const std::string& text, const char* flag, int most) {
  std::vector<int> numbers;
  for (const std::string& part : split_at_commas(text))
    numbers.push_back(static_cast<int>(parse_integer(part, flag, 1, most)));
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

/// On the virtual clock ranks take turns on the cores, so as many as there will be do no harm.
int usual_ranks(const Cluster& cluster, bool on_gpus, exec::local::ClockKind clock) {
  constexpr int kMostInTurns = 8;
  if (on_gpus) return cluster.devices();
  if (clock == exec::local::ClockKind::Virtual) return std::min(kMostInTurns, cluster.devices());
  return std::min(2, planner::cores_of_this_machine());
}

/// Whether its devices are GPUs. Throws MachineError, and InputError for a flag that is for GPUs.
bool measures_gpus(const Cluster& cluster) {
  if (cluster.device.kind == "cpu" || cluster.device.kind == "cuda")
    return cluster.device.kind == "cuda";
  throw MachineError("cluster " + cluster.name + " has devices of kind " + cluster.device.kind +
                     ", which this version cannot measure; profile with cluster local-cpu");
}

exec::ProfileBackend gpu_backend(const Arguments& arguments, const Model& model,
                                 exec::ProfileOptions& options) {
  if (options.clock == exec::local::ClockKind::Virtual)
    throw InputError(
        "--clock virtual measures CPU time; a GPU is measured in wall time: leave out --clock");
  exec::cuda::require_layers(model);
  options.ranks = std::min(options.ranks, static_cast<int>(model.layers.size()));
  return exec::cuda::profile_backend(exec::cuda::require_gpu(), precision_of(arguments, model),
                                     options.ranks);
}

int run_profile(const Arguments& arguments, Session& session) {
  const auto& names = arguments.positionals();
  const Target target = target_from(names.empty() ? "gpt-tiny" : names.front());
  exec::ProfileOptions options;
  const auto sizes = arguments.text("--sizes");
  options.micro_batch_sizes =
      sizes ? numbers_from(*sizes, "--sizes", kMostMicroBatch) : divisors_of(target.global_batch);
  const bool on_gpus = measures_gpus(target.cluster);
  if (arguments.text_or("--clock", "wall") == "virtual") {
    options.clock = exec::local::ClockKind::Virtual;
  }
  options.ranks =
      arguments.integer_or("--ranks", 1, 1024, usual_ranks(target.cluster, on_gpus, options.clock));
  if (on_gpus && arguments.has("--replicas"))
    throw InputError("--replicas belongs to CPUs, whose ranks share their caches");
  if (!on_gpus) options.replicas = target.replicas;
  if (const auto replicas = arguments.text("--replicas"))
    options.replicas = numbers_from(*replicas, "--replicas", kMostReplicas);
  if (!on_gpus && arguments.has("--precision"))
    throw InputError("--precision belongs to GPUs, and cluster " + target.cluster.name +
                     " has none");
  if (arguments.text_or("--numerics", "fast") == "exact") {
    options.numerics = exec::Numerics::Exact;
  }
  if (const auto budget = arguments.duration("--budget")) options.budget_ns = budget->value;
  options.optimizer =
      exec::optimizer_spec(target.training.optimizer, target.training.learning_rate);
  const TrainingSpec& training = target.training;
  options.data = data_request(arguments).value_or(
      exec::DataFiles{training.data, training.labels, training.targets});
  std::optional<exec::ProfileBackend> backend;
  if (on_gpus) {
    backend = gpu_backend(arguments, target.model, options);
  } else {
    options.divisions = target.divisions;
  }
  if (backend) options.backend = &*backend;
  const std::string out = arguments.text_or("--out", "profile.json");
  const Profile profile = measure(target.model, target.cluster, options, session);
  session.save(out, to_text(to_json(profile)));
  if (session.json()) {
    session.print_result({{"profile", to_json(profile)}, {"file", out}});
  } else {
    session.print(profile_text(profile, target.model, session.terminal()));
  }
  session.wrote(out, "; next: pipewright tune " + target.job + " --profile " + out);
  return kDone;
}

}  // namespace

Command profile_command() {
  Command command;
  command.name = "profile";
  command.summary = "measure this machine: the cost of every action and transfer";
  command.description =
      "Trains the model for a while on several ranks and measures F, I, W and the update of each "
      "layer there; then a transfer between two ranks. Every number is a median, and the file also "
      "says how the measurements are spread. Where a job asks for tp, cp or ep, layers are "
      "measured divided so, too. It trains on the data of the job: which experts rows go to, and "
      "so what they cost, depends on them.";
  command.examples = {
      {"profile examples/job.json -o profile.json", "for the model and the batch sizes of a job"},
      {"profile gpt-tiny --sizes 1,2,4 --budget 3s", "a preset, in about 3 seconds"},
  };
  command.positionals = {
      {.name = "MODEL",
       .help = "a job.json, a model.json or the name of a model preset; gpt-tiny if left out",
       .choices = {"gpt-tiny", "mlp", "resnet-tiny", "resnet50-small", "resnet50"}}};
  command.flags = {
      {.group = "Measurement",
       .name = "--sizes",
       .argument = "LIST",
       .help = "micro-batch sizes with commas; without it the divisors of the job's global batch "
               "(of 16 without a job)"},
      {.group = "Measurement",
       .name = "--ranks",
       .argument = "N",
       .help = "ranks that compute at once while it is measured; 2, or 1 on a single core; on GPUs "
               "as many as the cluster has devices; on the virtual clock as many, up to 8"},
      {.group = "Measurement",
       .name = "--replicas",
       .argument = "LIST",
       .help = "with commas: so many pipelines of these ranks train the model side by side, as a "
               "plan's dp would have them, for their weights share the caches; on CPUs. Without it "
               "1, and the job's least dp above it"},
      {.group = "Measurement",
       .name = "--clock",
       .argument = "KIND",
       .help = "virtual: the computing threads' CPU time, for run --clock virtual",
       .choices = {"wall", "virtual"},
       .checked = true},
      {.group = "Measurement",
       .name = "--numerics",
       .argument = "KIND",
       .help = "of the runs that the profile is for, as in run",
       .choices = {"fast", "exact"},
       .checked = true},
      precision_flag("Measurement", "of numbers on GPUs, as in run"),
      {.group = "Measurement",
       .name = "--budget",
       .argument = "TIME",
       .help = "about how long to measure (5s)"},
  };
  for (auto& flag : data_flags("Measurement",
                               "text to train on, or inputs as an array (.npy), instead of the "
                               "job's; random where there is none"))
    command.flags.push_back(std::move(flag));
  command.flags.push_back({.group = "Output",
                           .name = "--out",
                           .argument = "FILE",
                           .help = "where the profile goes (profile.json)",
                           .short_name = 'o',
                           .is_file = true,
                           .writes = Writes::File});
  command.run = run_profile;
  return command;
}

}  // namespace pipewright::tools
