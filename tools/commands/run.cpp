// pipewright run: replay a plan on real threads, or on processes of mpirun.
#include <exception>
#include <optional>

#include "core/base/error.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/base/cores.hpp"
#include "planner/plans/executable.hpp"
#include "planner/plans/run_of_plan.hpp"
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
#include "tools/output/gpu_work_text.hpp"
#include "tools/output/memory_text.hpp"
#include "tools/output/phases_text.hpp"
#include "tools/output/run_report.hpp"
#include "tools/output/step_lines.hpp"
#include "tools/output/timeline_files.hpp"
#include "tools/output/timeline_text.hpp"
#include "tools/running/cuda_flags.hpp"
#include "tools/running/data_flags.hpp"
#include "tools/running/dry_run.hpp"
#include "tools/running/modules.hpp"
#include "tools/running/process_job.hpp"
#include "tools/running/run_inputs.hpp"
#include "tools/running/run_log_writer.hpp"
#include "tools/running/run_request.hpp"
#include "tools/running/training.hpp"
#include "tools/running/tuning.hpp"

namespace pipewright::tools {
namespace {

exec::RunResult run_paced_ranks(const Program& program, const CostTable& costs,
                                const RankRequest& request, const exec::RunOptions& options) {
  if (request.link == nullptr)
    return exec::paced::run_paced(program, costs, request.clock, options);
  exec::mpi::MpiTransport transport(program, exec::local::paced_messages(program, costs),
                                    *request.link, options.verify_payloads);
  return exec::paced::run_paced(program, costs, options, transport);
}

exec::RunResult run_paced(const Program& program, const CostTable& costs,
                          const RankRequest& request, Session& session) {
  exec::RunOptions options = request.options(request.steps.value_or(1));
  session.phases().begin(exec::Phase::Steps);
  const InterruptScope scope;
  if (request.link != nullptr)
    require_same_inputs(*request.link, inputs_of_run(program, costs, "paced", options.steps,
                                                     options.verify_payloads));
  options.on_step = request.on_step(0, options.steps, session);
  exec::RunResult result = run_paced_ranks(program, costs, request, options);
  session.clear_progress();
  if (result.outcome == exec::Outcome::Interrupted) throw Interrupted();
  return result;
}

std::string header_text(const Subject& subject, const Terminal& terminal) {
  return painted(terminal, Ink::Bold, wrapped(subject.title, terminal.width, 0)) +
         wrapped("policy " + policy_text(subject.program.policy), terminal.width, 0);
}

/// What was trained, evaluated or predicted, and what it took.
void print_training(const Subject& subject, const DeviceResult& result, double most_apart,
                    Session& session) {
  const int width = session.terminal().width;
  const exec::TrainingResult* training = training_of(result);
  if (training == nullptr) return;
  const auto* cpu = std::get_if<exec::cpu::CpuResult>(&result);
  const auto* gpu = std::get_if<exec::cuda::CudaResult>(&result);
  if (training->evaluation)
    session.print(wrapped(evaluation_text(*training->evaluation), width, 0));
  if (training->verify)
    session.print(verify_text(*training->verify, training->first_step + 1, most_apart));
  if (gpu != nullptr) session.print(enqueued_text(subject.program, *gpu));
  if (const GpuWorkLog* work = work_of(result))
    session.print(wrapped(gpu_work_text(subject.program, gpu->timeline, *work), width, 0));
  session.print(wrapped(memory_text(*training, subject.costs), width, 0));
  if (cpu != nullptr) session.print(wrapped(weight_versions_text(subject.program, *cpu), width, 0));
}

void print_result(const Subject& subject, const exec::RunResult& result, Session& session) {
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
}

/// For the page: losses, and whether the gradients are a serial run's.
traces::PageNotes page_notes(const DeviceResult& result, double most_apart) {
  traces::PageNotes notes{.charts = loss_charts(run_of(result))};
  const exec::TrainingResult* training = training_of(result);
  if (training == nullptr || !training->verify) return notes;
  notes.checks.push_back({verify_text(*training->verify, training->first_step + 1, most_apart),
                          agrees(*training->verify, most_apart)});
  return notes;
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
DeviceResult run_on_device(const Arguments& arguments, const Subject& subject,
                           const RunRequest& request, Session& session) {
  try {
    if (!request.training) return run_paced(subject.program, subject.costs, request.ranks, session);
    return train(*subject.plan(), subject.program, subject.costs, request.ranks, *request.training,
                 session);
  } catch (const exec::RunFailed& failed) {
    const exec::RunResult& result = failed.result();
    if (request.ranks.link != nullptr) ignore_signals();
    if (!request.ranks.speaks()) throw;
    if (result.outcome == exec::Outcome::Diverged) {
      const auto checkpoints =
          request.training ? request.training->checkpoints : CheckpointRequest{};
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
exec::Outcome outcome_of(const DeviceResult& result) {
  const exec::TrainingResult* training = training_of(result);
  const bool diverged =
      training != nullptr && training->evaluation && training->evaluation->not_finite_rows > 0;
  return diverged ? exec::Outcome::Diverged : run_of(result).outcome;
}

/// The log says how the run has ended, whatever way it does.
DeviceResult run_logged(const Arguments& arguments, const Subject& subject,
                        const RunRequest& request, Session& session) {
  RunLogWriter* log = request.ranks.log;
  try {
    DeviceResult left = run_on_device(arguments, subject, request, session);
    if (log != nullptr) log->end(to_string(outcome_of(left)));
    return left;
  } catch (...) {
    if (log != nullptr) log->end_with(std::current_exception());
    throw;
  }
}

/// What is known of a training, an evaluation or a prediction alone, behind what all runs have.
void put_training(const Subject& subject, const TrainingRequest& request,
                  const DeviceResult& result, Json& fields) {
  const exec::TrainingResult& training = *training_of(result);
  if (training.evaluation) fields["evaluation"] = evaluation_fields(*training.evaluation);
  if (const auto* gpu = std::get_if<exec::cuda::CudaResult>(&result))
    put_enqueued(subject.program, *gpu, fields);
  if (const GpuWorkLog* work = work_of(result))
    fields["gpu_work"] = gpu_work_fields(subject.program, run_of(result).timeline, *work);
  put_memory(training, subject.costs, fields);
  fields["first_step"] = training.first_step;
  if (const auto& save = request.checkpoints.save) {
    const int done = training.first_step + static_cast<int>(training.steps.size());
    fields["checkpoint"] = exec::checkpoint_folder(save->folder, done).string();
  }
}

Json result_fields(const Subject& subject, const RunRequest& request, const DeviceResult& result,
                   Session& session) {
  const exec::TrainingResult* training = training_of(result);
  Json fields = {{"outcome", std::string(to_string(outcome_of(result)))},
                 {"steps", Json::array()},  // steps_list()
                 {"verify", training == nullptr ? Json(nullptr) : verify_fields(training->verify)},
                 {"bubble_ratio", run_of(result).figures.bubble_ratio},
                 {"clock", request.is_virtual() ? "virtual" : "wall"}};
  const auto* cpu = std::get_if<exec::cpu::CpuResult>(&result);
  if (subject.program.asynchronous && cpu != nullptr && !cpu->peak_weight_versions.empty())
    fields["peak_weight_versions"] = cpu->peak_weight_versions;
  fields["phases"] = phases_fields(session.phases().spans());
  if (request.training) put_training(subject, *request.training, result, fields);
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

/// Ranks that divide layers compute as what they are: every device a rank.
void take_devices(Subject& subject, exec::Numerics numerics = exec::Numerics::Fast,
                  exec::RunMode mode = exec::RunMode::Train) {
  Plan* const plan = std::get_if<Plan>(&subject.given);
  if (plan == nullptr || !planner::divides_layers(*plan)) return;
  plan->policy = subject.program.policy;
  plan->costs = subject.costs;
  subject.order = planner::order_of_run(*plan, numerics, mode);
  subject.program = planner::program_of_run(*plan, numerics, mode);
  subject.costs = planner::costs_of_run(*plan);
}

/// What is asked for; the subject becomes what will run.
RunRequest take_request(const Arguments& arguments, Subject& subject) {
  const auto forward = forward_request(arguments);
  if (forward) take_forwards(subject, forward->mode);
  RunRequest request = run_request(arguments, subject);
  if (request.training)
    take_devices(subject, request.training->numerics,
                 forward ? forward->mode : exec::RunMode::Train);
  return request;
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
  RunRequest request = take_request(arguments, subject);
  const auto forward = forward_request(arguments);
  RankRequest& ranks = request.ranks;
  ranks.link = link;
  if (Plan* plan = std::get_if<Plan>(&subject.given))
    take_memory_of_run(*plan, subject.costs, forward ? forward->mode : exec::RunMode::Train,
                       request.training ? request.training->numerics : exec::Numerics::Fast,
                       arguments.has("--mem"));
  if (request.training && request.training->cuda) leave_out_copies(subject.costs);
  ranks.header = header_text(subject, session.terminal());
  refuse_problems(subject);
  if (request.training && request.training->cuda) {
    require_executable(*subject.plan(), "cuda");
    if (const auto status = reject_stuck(subject, *request.training->cuda, session)) return *status;
  }
  std::optional<RunLogWriter> log;
  if (const auto path = arguments.text("--log"); path && ranks.speaks()) {
    log.emplace(*path, subject.title, policy_text(subject.program.policy), session);
    ranks.log = &*log;
  }
  ranks.on_overdue = [&](const exec::RunResult& unfinished) {
    if (!ranks.speaks()) leave_at_once(kRunFailed);
    if (log) log->end(to_string(unfinished.outcome));
    leave_without_ranks(arguments, subject, unfinished, session);
  };
  const DeviceResult left = run_logged(arguments, subject, request, session);
  const exec::RunResult& result = run_of(left);
  if (link != nullptr && !result.finished()) ignore_signals();
  const bool diverged = outcome_of(left) == exec::Outcome::Diverged;
  if (!ranks.speaks()) return !result.finished() ? kRunFailed : diverged ? kDiverged : kDone;
  if (!result.finished()) {
    show_unfinished(arguments, subject, result, session);
    return kRunFailed;
  }
  session.phases().finish();
  if (session.terminal().progress) session.note(phases_text(session.phases().spans()));
  save_timeline_files(arguments, session, subject, result.timeline,
                      traces::TraceInfo::Kind::Measured, clocks_text(result),
                      page_notes(left, request.most_apart()), work_of(left));
  if (session.json()) {
    session.print_result(result_fields(subject, request, left, session), steps_list(result));
  } else {
    print_result(subject, result, session);
    print_training(subject, left, request.most_apart(), session);
    if (request.is_on_cpus() && !request.is_virtual() && link == nullptr)
      session.print(wrapped(shared_cores_text(subject.program), session.terminal().width, 0));
    if (request.is_on_cpus() && request.is_virtual()) {
      session.print(
          wrapped("virtual clock: a computation took its thread's CPU time, a transfer "
                  "what the plan's costs say",
                  session.terminal().width, 0));
    }
  }
  const auto over = over_memory(result.figures.ranks, subject.memory_limit);
  for (const auto& sentence : over) session.note(sentence);
  if (diverged) return kDiverged;
  const exec::TrainingResult* training = training_of(left);
  const bool agreed =
      training == nullptr || !training->verify || agrees(*training->verify, request.most_apart());
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
  if (const auto forward = forward_request(arguments)) take_forwards(*subject, forward->mode);
  refuse_problems(*subject);
  const exec::Numerics numerics = arguments.text_or("--numerics", "fast") == "exact"
                                      ? exec::Numerics::Exact
                                      : exec::Numerics::Fast;
  if (const Plan* plan = subject->plan()) {
    const bool divides = planner::divides_layers(*plan) && !arguments.has("--mode");
    const auto on_gpus = plan->executable.find("cuda");
    const bool trains =
        on_gpus == plan->executable.end() || on_gpus->second.answer != Executable::Answer::No;
    // What no GPU trains yet can be seen all the same, where ranks tell it one another.
    if (nccl && divides && !trains && planner::cpus_run(*plan)) {
      session.note(
          "GPUs do not train layers that are divided so yet; these are the calls that they would "
          "make");
    } else {
      require_executable(*plan, "cuda");
    }
    if (divides) take_devices(*subject, numerics);
  }
  return nccl ? show_nccl_calls(*subject, numerics, session)
              : show_issue_order(arguments, *subject, session);
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
    std::optional<Subject> subject = read_run_subject(arguments, session);
    if (!subject) return stop_after_plan(session);
    take_request(arguments, *subject);
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
  std::vector<Flag> flags = {{.group = "Training",
                              .name = "--steps",
                              .argument = "N",
                              .help = "training steps, instead of the plan's; 1 for an order"}};
  for (auto& flag : data_flags(
           "Training", "text to train on, or inputs as an array (.npy), instead of the plan's"))
    flags.push_back(std::move(flag));
  flags.push_back({.group = "Training",
                   .name = "--numerics",
                   .argument = "KIND",
                   .help = "exact: sums that do not depend on order, so that gradients and "
                           "parameters are the serial run's bit for bit; fast: OpenBLAS",
                   .choices = {"exact", "fast"},
                   .checked = true});
  flags.push_back(
      {.group = "Training",
       .name = "--verify",
       .help = "compare the gradients of the first step with a serial run; exit 1 if they differ"});
  return flags;
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
  command.flags.push_back(run_log_flag());
  command.run = run_program;
  return command;
}

}  // namespace pipewright::tools
