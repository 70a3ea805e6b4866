// pipewright run: replay a plan on real threads, or on processes of mpirun.
#include "core/base/error.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/base/cores.hpp"
#include "sim/engine.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/memory_limit.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/comparison_text.hpp"
#include "tools/output/memory_text.hpp"
#include "tools/output/phases_text.hpp"
#include "tools/output/run_report.hpp"
#include "tools/output/step_lines.hpp"
#include "tools/output/timeline_files.hpp"
#include "tools/output/timeline_text.hpp"
#include "tools/running/cuda_flags.hpp"
#include "tools/running/dry_run.hpp"
#include "tools/running/modules.hpp"
#include "tools/running/process_job.hpp"
#include "tools/running/run_inputs.hpp"
#include "tools/running/training.hpp"
#include "tools/running/tuning.hpp"

namespace pipewright::tools {
namespace {

constexpr int kMostSteps = 1'000'000'000;
constexpr int kMostEntries = 1'000'000;

/// The files that replace the plan's, all together.
std::optional<exec::DataFiles> data_request(const Arguments& arguments) {
  exec::DataFiles files{arguments.text_or("--data", ""), arguments.text_or("--labels", ""),
                        arguments.text_or("--targets", "")};
  const bool has_answers = !files.labels.empty() || !files.targets.empty();
  if (has_answers && !files.data.ends_with(".npy")) {
    throw InputError("--labels and --targets belong to --data FILE.npy, the inputs");
  }
  if (!files.labels.empty() && !files.targets.empty()) {
    throw InputError("--labels and --targets: give one of the two, as the model's loss asks");
  }
  return files.data.empty() ? std::nullopt : std::optional(std::move(files));
}

struct RunRequest {
  std::string device;
  TrainingRequest training;

  bool trains() const { return device != "paced"; }
};

RunRequest run_request(const Arguments& arguments, const Subject& subject) {
  RunRequest request;
  request.device = device_name(arguments, subject.plan() != nullptr ? "cpu" : "paced");
  if (subject.plan() == nullptr) {  // with a plan, train() checks what it needs
    require_transport(arguments.text_or("--transport", "local"));
    require_device(request.device);
  }
  if (arguments.text_or("--clock", "wall") == "virtual") {
    request.training.clock = exec::local::ClockKind::Virtual;
  }
  if (const auto steps = arguments.integer("--steps", 1, kMostSteps)) {
    request.training.steps = static_cast<int>(*steps);
  }
  request.training.data = data_request(arguments);
  request.training.verify = arguments.has("--verify");
  request.training.checkpoints = checkpoint_request(arguments);
  request.training.forward = forward_request(arguments);
  request.training.verify_payloads = arguments.has("--verify-payloads");
  if (arguments.text_or("--numerics", "fast") == "exact") {
    request.training.numerics = exec::Numerics::Exact;
  }
  if (const auto patience = arguments.duration("--watchdog")) {
    if (patience->value == 0) throw InputError("--watchdog: expected more than 0, such as 30s");
    request.training.watchdog_ns = patience->value;
  }
  request.training.flight_entries =
      arguments.integer_or("--flight-recorder", 0, kMostEntries, request.training.flight_entries);
  if (request.trains()) {
    if (subject.plan() == nullptr) {
      throw InputError(subject.source, "",
                       "an order says nothing of a model to train; give a plan.json, or --device "
                       "paced");
    }
    refuse_flags(arguments, cost_flags(), "belongs to --device paced; a training has its own");
    if (request.device == "cuda")
      request.training.cuda = cuda_request(arguments, subject.program, subject.costs);
  } else if (request.training.checkpoints.any()) {
    throw InputError("checkpoints belong to --device cpu; paced trains nothing");
  } else {
    for (const char* flag : {"--verify", "--data", "--numerics", "--output"}) {
      if (!arguments.has(flag)) continue;
      throw InputError(std::string(flag) + " belongs to --device cpu; paced computes nothing");
    }
  }
  return request;
}

bool is_virtual(const RunRequest& request) {
  return request.training.clock == exec::local::ClockKind::Virtual;
}

exec::RunResult run_paced_ranks(const Program& program, const CostTable& costs,
                                const RunRequest& request, const exec::RunOptions& options) {
  if (request.training.link == nullptr)
    return exec::paced::run_paced(program, costs, request.training.clock, options);
  exec::mpi::MpiTransport transport(program, exec::local::paced_messages(program, costs),
                                    *request.training.link, options.verify_payloads);
  return exec::paced::run_paced(program, costs, options, transport);
}

exec::RunResult run_paced(const Program& program, const CostTable& costs, const RunRequest& request,
                          Session& session) {
  exec::RunOptions options;
  options.steps = request.training.steps.value_or(1);
  options.watchdog_ns = request.training.watchdog_ns;
  options.flight_entries = request.training.flight_entries;
  options.on_overdue = request.training.on_overdue;
  options.interrupted = &interrupt_flag();
  options.on_step = step_lines(session, {.all = options.steps,
                                         .header = request.training.header,
                                         .speaks = request.training.speaks()});
  session.phases().begin(exec::Phase::Steps);
  const InterruptScope scope;
  options.verify_payloads = request.training.verify_payloads;
  if (request.training.link != nullptr)
    require_same_inputs(
        *request.training.link,
        inputs_of_run(program, costs, "paced", options.steps, options.verify_payloads));
  exec::RunResult result = run_paced_ranks(program, costs, request, options);
  session.clear_progress();
  if (result.outcome == exec::Outcome::Interrupted) throw Interrupted();
  return result;
}

std::string header_text(const Subject& subject, const Terminal& terminal) {
  return painted(terminal, Ink::Bold, wrapped(subject.title, terminal.width, 0)) +
         wrapped("policy " + policy_text(subject.program.policy), terminal.width, 0);
}

void print_result(const Subject& subject, const exec::RunResult& result, double most_apart,
                  Session& session) {
  const Terminal& terminal = session.terminal();
  if (!writes_steps_at_once(session))
    session.print(header_text(subject, terminal) + steps_text(result));
  session.print(timeline_text(subject.program, result.timeline, terminal.width, terminal));
  session.print("step " + std::to_string(result.first_step + result.timeline_step + 1) +
                " is shown: " + format_duration(Nanoseconds(result.figures.makespan_ns)) +
                "   bubble " + percent_text(result.figures.bubble_ratio) + "\n");
  const sim::Result predicted = sim::simulate(subject.program, subject.costs);
  if (predicted.finished) {
    const auto comparison = traces::compare(subject.program, predicted.timeline, result.timeline);
    session.print("predicted " + format_duration(Nanoseconds(comparison.step.predicted_ns)) +
                  ", error " + signed_percent_text(comparison.step.error_percent() / 100) + "\n");
  }
  if (result.evaluation)
    session.print(wrapped(evaluation_text(*result.evaluation), terminal.width, 0));
  if (result.verify) session.print(verify_text(*result.verify, result.first_step + 1, most_apart));
  session.print(enqueued_text(subject.program, result));
  session.print(wrapped(memory_text(result, subject.costs), terminal.width, 0));
  const std::string versions = weight_versions_text(subject.program, result);
  if (!versions.empty()) session.print(wrapped(versions, terminal.width, 0));
}

/// A job without a plan is tuned first, if its tuner_run_mode says so; nothing if that was all.
std::optional<Subject> read_run_subject(const Arguments& arguments, Session& session) {
  session.phases().begin(exec::Phase::Build);
  if (!arguments.positionals().empty() && !arguments.has("--schedule")) {
    const std::string& path = arguments.positionals().front();
    TunedForRun tuned = tune_for_run(path, session);
    if (tuned.stops) return std::nullopt;
    if (tuned.plan) {
      session.phases().begin(exec::Phase::Parallel);
      return subject_of_plan(*std::move(tuned.plan), path, arguments);
    }
  }
  return read_subject(arguments, Purpose::Judge, session);
}

/// Shows what a failed run has left before its error is thrown on.
exec::RunResult run_on_device(const Arguments& arguments, const Subject& subject,
                              const RunRequest& request, Session& session, bool speaks) {
  try {
    return request.trains() ? train(*subject.plan(), subject.program, request.training, session)
                            : run_paced(subject.program, subject.costs, request, session);
  } catch (const exec::RunFailed& failed) {
    const exec::RunResult& result = failed.result();
    if (request.training.link != nullptr) ignore_signals();
    if (!speaks) throw;
    if (result.outcome == exec::Outcome::Diverged) {
      const auto& checkpoints = request.training.checkpoints;
      show_diverged(arguments, subject, result, last_periodic_checkpoint(checkpoints, result),
                    session);
    } else {
      show_unfinished(arguments, subject, result, session);
    }
    throw;
  }
}

int stop_after_plan(Session& session) {
  session.phases().finish();
  if (session.json()) session.print_result({{"phases", phases_fields(session.phases().spans())}});
  return kDone;
}

/// Outputs that are no finite numbers come from a training that diverged.
exec::Outcome outcome_of(const exec::RunResult& result) {
  const bool diverged = result.evaluation && result.evaluation->not_finite_rows > 0;
  return diverged ? exec::Outcome::Diverged : result.outcome;
}

Json result_fields(const Subject& subject, const RunRequest& request, const exec::RunResult& result,
                   Session& session) {
  Json fields = {{"outcome", std::string(to_string(outcome_of(result)))},
                 {"steps", Json::array()},  // steps_list()
                 {"verify", verify_fields(result.verify)},
                 {"bubble_ratio", result.figures.bubble_ratio},
                 {"clock", is_virtual(request) ? "virtual" : "wall"}};
  if (subject.program.asynchronous && !result.peak_weight_versions.empty()) {
    fields["peak_weight_versions"] = result.peak_weight_versions;
  }
  fields["phases"] = phases_fields(session.phases().spans());
  if (result.evaluation) fields["evaluation"] = evaluation_fields(*result.evaluation);
  put_enqueued(subject.program, result, fields);
  put_memory(result, subject.costs, fields);
  if (request.trains()) fields["first_step"] = result.first_step;
  if (const auto& save = request.training.checkpoints.save) {
    const int done = result.first_step + static_cast<int>(result.steps.size());
    fields["checkpoint"] = exec::checkpoint_folder(save->folder, done).string();
  }
  return fields;
}

/// What a prediction for ranks with a core each cannot know; "" where each has one.
std::string shared_cores_text(const Program& program) {
  const int ranks = program.ranks(), cores = planner::cores_of_this_machine();
  if (ranks <= cores) return "";
  return std::to_string(ranks) + " ranks take turns on " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores") +
         ": --clock virtual shows their step with a core for each\n";
}

void refuse_problems(const Subject& subject) {
  if (subject.problems.empty()) return;
  const std::string& problem = subject.problems.front();
  const bool names_file = problem.starts_with(subject.source);
  throw InputError(names_file ? "" : subject.source, "",
                   (names_file ? "" : "not a whole order: ") + problem + "; see pipewright check");
}

/// `link`: of the job that this process is part of; null if all ranks are threads of it.
int run_ranks(const Arguments& arguments, Session& session, exec::mpi::Link* link) {
  std::optional<Subject> read = read_run_subject(arguments, session);
  if (!read) return stop_after_plan(session);
  Subject& subject = *read;
  take_forwards(subject, forward_request(arguments).mode);
  RunRequest request = run_request(arguments, subject);
  request.training.link = link;
  if (Plan* plan = std::get_if<Plan>(&subject.given))
    take_memory_of_run(*plan, subject.costs, request.training.forward.mode,
                       request.training.numerics, arguments.has("--mem"));
  request.training.header = header_text(subject, session.terminal());
  const bool speaks = link == nullptr || link->process() == 0;
  refuse_problems(subject);
  if (request.training.cuda) {
    require_executable(*subject.plan(), "cuda");
    if (const auto status = reject_stuck(subject, *request.training.cuda, session)) return *status;
  }
  request.training.on_overdue = [&](const exec::RunResult& result) {
    if (!speaks) leave_at_once(kRunFailed);
    leave_without_ranks(arguments, subject, result, session);
  };
  const exec::RunResult result = run_on_device(arguments, subject, request, session, speaks);
  if (link != nullptr && !result.finished()) ignore_signals();
  const bool diverged = outcome_of(result) == exec::Outcome::Diverged;
  if (!speaks) return !result.finished() ? kRunFailed : diverged ? kDiverged : kDone;
  if (!result.finished()) {
    show_unfinished(arguments, subject, result, session);
    return kRunFailed;
  }
  session.phases().finish();
  if (session.terminal().progress) session.note(phases_text(session.phases().spans()));
  save_timeline_files(arguments, session, subject, result.timeline,
                      traces::TraceInfo::Kind::Measured, clocks_text(result));
  if (session.json()) {
    session.print_result(result_fields(subject, request, result, session), steps_list(result));
  } else {
    print_result(subject, result, most_norm_rel(request.training.cuda), session);
    if (request.device == "cpu" && !is_virtual(request) && link == nullptr)
      session.print(wrapped(shared_cores_text(subject.program), session.terminal().width, 0));
    if (request.device == "cpu" && is_virtual(request)) {
      session.print(
          wrapped("virtual clock: a computation took its thread's CPU time, a transfer "
                  "what the plan's costs say",
                  session.terminal().width, 0));
    }
  }
  const auto over = over_memory(result.figures.ranks, subject.memory_limit);
  for (const auto& sentence : over) session.note(sentence);
  if (diverged) return kDiverged;
  const double most = most_norm_rel(request.training.cuda);
  const bool agreed = !result.verify || agrees(*result.verify, most);
  return agreed && over.empty() ? kDone : kAnswerIsNo;
}

/// What GPUs would be given; needs none.
int dry_run(const Arguments& arguments, Session& session) {
  const std::string transport = arguments.text_or("--transport", "local");
  const bool nccl = transport == "nccl";
  const std::string device = device_name(arguments, "");
  if (device != "cuda" || transport == "mpi" || transport == "tcp") {
    throw InputError(
        "--dry-run shows what GPUs would be given: add --transport nccl (a GPU a rank) or "
        "--device cuda (one GPU for all ranks)");
  }
  std::optional<Subject> subject = read_run_subject(arguments, session);
  if (!subject) return stop_after_plan(session);
  take_forwards(*subject, forward_request(arguments).mode);
  refuse_problems(*subject);
  if (const Plan* plan = subject->plan()) require_executable(*plan, "cuda");
  return nccl ? show_nccl_calls(*subject, session) : show_issue_order(arguments, *subject, session);
}

int run_program(const Arguments& arguments, Session& session) {
  if (arguments.has("--dry-run")) return dry_run(arguments, session);
  require_cuda_flags_fit(arguments);
  const std::string transport = arguments.text_or("--transport", "local");
  const bool between_processes = transport == "mpi" || transport == "tcp";
  if (transport == "mpi") require_transport(transport);
  if (between_processes && arguments.has("--clock"))
    throw InputError("--clock belongs to --transport local");
  const auto job = transport == "local" ? std::nullopt : job_for(transport);
  if (between_processes && !job) {
    const std::optional<Subject> subject = read_run_subject(arguments, session);
    if (!subject) return stop_after_plan(session);
    refuse_outside_job(transport, "run", std::to_string(subject->program.ranks()));
  }
  if (!job) return run_ranks(arguments, session, nullptr);
  return run_in_job(*job, session, "run", [&](exec::mpi::Link& link, Session& own) {
    return run_ranks(arguments, own, &link);
  });
}

std::vector<Flag> run_flags() {
  return {
      {.group = "Run",
       .name = "--device",
       .argument = "KIND",
       .help = "what computes: cpu and cuda train a plan's model for real, paced takes the time of "
               "the cost table and checks every message",
       .choices = {"cpu", "paced", "cuda"},
       .checked = true},
      {.group = "Run",
       .name = "--transport",
       .argument = "KIND",
       .help = "how ranks meet; local: threads of this process; mpi: processes that mpirun has "
               "started, one a rank; tcp: processes that torchrun or a script has started; nccl: a "
               "GPU a rank, in this process or in those of a job",
       .choices = {"local", "mpi", "tcp", "nccl"},
       .checked = true},
      {.group = "Run",
       .name = "--verify-payloads",
       .help = "every message carries a checksum, which the receiver compares"},
      {.group = "Run",
       .name = "--watchdog",
       .argument = "TIME",
       .help = "give up when nothing has ended for so long (30s); a run that cannot go on is ended "
               "at once"},
      {.group = "Run",
       .name = "--report",
       .argument = "FILE",
       .help = "if the run does not finish: write what each rank did last as JSON",
       .is_file = true,
       .writes = Writes::File},
      {.group = "Run",
       .name = "--flight-recorder",
       .argument = "N",
       .help = "entries that each rank keeps for that report (1024); 0: none"},
      {.group = "Run",
       .name = "--clock",
       .argument = "KIND",
       .help = "virtual: no rank waits for the machine's time; on cpu a computation takes its "
               "thread's CPU time and a transfer the plan's costs, so that eight ranks on two "
               "cores show eight devices; on paced every time is exact",
       .choices = {"wall", "virtual"},
       .checked = true},
  };
}

std::vector<Flag> training_flags() {
  return {
      {.group = "Training",
       .name = "--steps",
       .argument = "N",
       .help = "training steps, instead of the plan's; 1 for an order"},
      {.group = "Training",
       .name = "--data",
       .argument = "FILE",
       .help = "text to train on, or inputs as an array (.npy), instead of the plan's",
       .is_file = true},
      {.group = "Training",
       .name = "--labels",
       .argument = "FILE",
       .help = "the inputs' classes, as an array of whole numbers (.npy)",
       .is_file = true},
      {.group = "Training",
       .name = "--targets",
       .argument = "FILE",
       .help = "what a model with the loss mse has to give for the inputs (.npy)",
       .is_file = true},
      {.group = "Training",
       .name = "--numerics",
       .argument = "KIND",
       .help = "exact: sums that do not depend on order, so that gradients and parameters are the "
               "serial run's bit for bit; fast: OpenBLAS",
       .choices = {"exact", "fast"},
       .checked = true},
      {.group = "Training",
       .name = "--verify",
       .help = "compare the gradients of the first step with a serial run; exit 1 if they differ"},
  };
}

}  // namespace

Command run_command() {
  Command command;
  command.name = "run";
  command.summary = "replay a plan on real threads, and train with it";
  command.description =
      "A plan trains on the CPU; a schedule or a CSV runs on the paced device, under the policy "
      "that check takes. A job names its plan in tuner_load_path. A run that hangs is ended by the "
      "watchdog, which names the cycle, with exit status 4; a line for each rank then says whether "
      "it is stuck, slow or dead, and --trace holds what there was.";
  command.examples = {
      {"run examples/plan.json --data README.md --verify --trace real.trace.json.gz "
       "--save-checkpoint saved",
       "train, check the gradients, write the timeline and the weights"},
      {"run --schedule paddle-vpp --jobs fused -p 4 -m 8 -v 2",
       "a hang on real threads; exits with 4"},
      {"run examples/plan.json --mode evaluate --data docs/cli.md --load-checkpoint saved",
       "loss and perplexity of a text"},
      {"run examples/order.csv --device paced --clock virtual --json", "an order of your own"},
      {"run examples/plan.json --transport nccl --dry-run",
       "what NCCL would be called with; needs no GPU"},
      {"run examples/plan.json --data README.md --transport mpi --verify",
       "a process for each rank", "mpirun -np 2 "},
  };
  command.positionals = {subject_file()};
  command.flags = run_flags();
  for (auto& flag : cuda_flags()) command.flags.push_back(std::move(flag));
  for (auto& flag : training_flags()) command.flags.push_back(std::move(flag));
  for (auto& flag : forward_flags()) command.flags.push_back(std::move(flag));
  for (auto& flag : checkpoint_flags()) command.flags.push_back(std::move(flag));
  for (auto& flag : subject_flags()) command.flags.push_back(std::move(flag));
  for (auto& flag : timeline_file_flags()) command.flags.push_back(std::move(flag));
  command.run = run_program;
  return command;
}

}  // namespace pipewright::tools
