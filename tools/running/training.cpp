#include "tools/running/training.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "core/base/error.hpp"
#include "exec/collectives/process/job_groups.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cpu/checkpointing.hpp"
#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cuda/run.hpp"
#include "exec/transports/local/transport.hpp"
#include "exec/transports/nccl/library.hpp"
#include "exec/transports/nccl/run.hpp"
#include "exec/transports/process/transport.hpp"
#include "planner/plans/executable.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/output/step_lines.hpp"
#include "tools/running/modules.hpp"
#include "tools/running/process_job.hpp"
#include "tools/running/run_inputs.hpp"

namespace pipewright::tools {
namespace {

std::string small_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

void require_room(const Plan& plan, const Program& program, const CostTable& costs) {
  Bytes needed;
  if (costs.memory.empty()) {
    for (const Bytes peak : plan.predicted.peak_bytes) needed += peak;
  } else {
    for (const RankFigures& rank : peaks_of(program, costs)) needed += Bytes(rank.peak_bytes);
  }
  const Bytes there(std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  if (there.value <= 0 || needed <= there) return;
  throw MachineError("the ranks of this plan need " + format_bytes(needed) +
                     " together, and this machine has " + format_bytes(there) +
                     "; use --device paced");
}

/// What a run's numbers are narrower or wider than planned.
void tell_number_bytes(const Plan& plan, const CudaRequest& request, Session& session) {
  const auto bytes = static_cast<int>(exec::cuda::number_bytes(request.precision));
  if (bytes == plan.model.bytes_per_element) return;
  session.note("numbers have " + std::to_string(bytes) + " bytes here, and " +
               std::to_string(plan.model.bytes_per_element) +
               " in the plan (bytes_per_element), whose predictions are of those");
}

/// Where nobody has asked, a run that has a step to replay.
bool as_graph(const CudaRequest& request, const Program& program, const Model& model, int steps) {
  if (request.graph != GraphUse::WhereAllowed) return request.graph == GraphUse::Always;
  return !request.over_nccl && steps > exec::cuda::kLeastCapturedSteps &&
         exec::cuda::why_not_captured(program, model, request.precision).empty();
}

/// Then attention holds more than planned.
void tell_missing_cudnn(const pipewright_cuda& cuda, const CudaRequest& request, Session& session) {
  if (request.precision != exec::cuda::Precision::Bfloat16) return;
  const std::string why = exec::cuda::why_no_cudnn(cuda);
  if (!why.empty()) session.note("cuDNN: " + why + ", and holds more than planned");
}

/// Who has attached a profiler wants to see actions.
void tell_profiled_graph(const pipewright_cuda& cuda, const exec::cuda::CudaTraining& training,
                         Session& session) {
  if (training.as_graph && exec::cuda::is_profiled(cuda))
    session.note(
        "a profiler has attached, and sees steps that are one CUDA graph each, without their "
        "actions; --no-cuda-graph shows them");
}

/// `session` null: another process speaks.
exec::cuda::CudaResult run_on_gpus(const Program& program, const CostTable& costs,
                                   const exec::cpu::Training& training,
                                   const exec::RunOptions& options, const CudaRequest& request,
                                   exec::mpi::Link* link, Session* session) {
  const exec::cuda::CudaTraining on_gpu{training,
                                        request.precision,
                                        request.hold_ns,
                                        {},
                                        as_graph(request, program, *training.model, options.steps),
                                        request.records_work};
  exec::cuda::require_trainable(program, on_gpu, request.over_nccl);  // reported without a GPU too
  if (request.over_nccl) require_transport("nccl");
  require_device("cuda");
  const pipewright_cuda& cuda = exec::cuda::require_gpu();
  if (session != nullptr) {
    tell_missing_cudnn(cuda, request, *session);
    tell_profiled_graph(cuda, on_gpu, *session);
  }
  if (!request.over_nccl) return exec::cuda::run_on_cuda(cuda, program, costs, on_gpu, options);
  const pipewright_nccl& nccl = exec::nccl::load_nccl();
  if (link == nullptr) return exec::nccl::run_on_nccl(cuda, nccl, program, costs, on_gpu, options);
  exec::collectives::JobGroups groups(*link);
  return exec::nccl::run_on_nccl(
      cuda, nccl, program, costs, on_gpu, options, *link, local_process(*link),
      [&](std::span<const RankId> ranks, const auto& look) { return groups.group(ranks, look); });
}

exec::cpu::CpuResult run_on_cpus(const Program& program, const CostTable& costs,
                                 const exec::cpu::Training& training,
                                 const exec::RunOptions& options, exec::mpi::Link* link) {
  if (link == nullptr) return exec::cpu::run_on_cpu(program, costs, training, options);
  if (training.phases != nullptr) training.phases->begin(exec::Phase::InitComm);
  exec::mpi::MpiTransport transport(program, exec::local::real_messages(program, costs), *link,
                                    options.verify_payloads);
  exec::collectives::JobGroups groups(*link);
  return exec::cpu::run_on_cpu(
      program, costs, training, options, transport,
      [&](std::span<const RankId> ranks, const auto& look) { return groups.group(ranks, look); });
}

std::optional<exec::Checkpoint> load_checkpoint(const TrainingRequest& request, Session& session) {
  if (!request.checkpoints.load) return std::nullopt;
  exec::Checkpoint start = exec::Checkpoint::open(*request.checkpoints.load);
  if (!start.is_sealed()) {
    session.note(
        start.folder().string() +
        ": its checkpoint.json comes from an older release and has no checksum: the arrays are "
        "checked, but a changed digit in checkpoint.json may go unseen");
  }
  return start;
}

/// `all` counts from the beginning of the training, so that a command that is given again after a
/// crash comes to the same end.
int steps_left(const std::optional<exec::Checkpoint>& start, int all) {
  const int done = start ? start->facts().step : 0;
  if (done < all) return all - done;
  throw InputError(start->folder().string(), "",
                   "was saved after step " + std::to_string(done) +
                       ", and the training ends after step " + std::to_string(all) +
                       "; ask for more with --steps, which counts from the first step");
}

void tell_start(const exec::Checkpoint& start, const exec::cpu::Training& training,
                Session& session) {
  session.note("goes on after step " + std::to_string(start.facts().step) + ", from " +
               start.folder().string());
  for (const std::string& note : exec::cpu::resume_notes(start, training)) session.note(note);
}

}  // namespace

double most_norm_rel(exec::cuda::Precision precision) {
  switch (precision) {
    case exec::cuda::Precision::Tf32:
      return 4e-3;  // an eighth of bfloat16's, for three bits more
    case exec::cuda::Precision::Bfloat16:
      return 3e-2;
    default:
      return kMostNormRel;
  }
}

void require_executable(const Plan& plan, const std::string& device) {
  const auto found = plan.executable.find(device);
  if (found == plan.executable.end()) return;
  const Executable& executable = found->second;
  if (executable.answer == Executable::Answer::Yes) return;
  // What a GPU's machine needs is looked for when the run begins.
  if (device == "cuda" && executable.answer == Executable::Answer::IfThere) return;
  throw MachineError(std::string("this plan does not run on ") +
                     (device == "cuda" ? "GPUs: " : "CPUs: ") + to_text(executable) +
                     (planner::cpus_run(plan) ? "; use --device cpu" : ""));
}

exec::RunOptions RankRequest::options(int steps_now) const {
  exec::RunOptions options;
  options.steps = steps_now;
  options.watchdog_ns = watchdog_ns;
  options.flight_entries = flight_entries;
  options.on_overdue = on_overdue;
  options.interrupted = &interrupt_flag();
  options.verify_payloads = verify_payloads;
  return options;
}

std::function<void(int, const exec::StepResult&)> RankRequest::on_step(int first, int all,
                                                                       Session& session) const {
  auto show =
      step_lines(session, {.first = first, .all = all, .header = header, .speaks = speaks()});
  if (log == nullptr) return show;
  log->begin(first, all);
  return [first, show = std::move(show), log = log](int step, const exec::StepResult& result) {
    log->step(std::int64_t{first} + step + 1, result);
    show(step, result);
  };
}

DeviceResult train(const Plan& plan, const Program& program, const CostTable& costs,
                   const RankRequest& ranks, const TrainingRequest& request, Session& session) {
  require_executable(plan, request.cuda ? "cuda" : "cpu");
  if (!request.cuda && ranks.link == nullptr) require_room(plan, program, costs);
  const exec::DataFiles files = request.data.value_or(
      exec::DataFiles{plan.training.data, plan.training.labels, plan.training.targets});
  if (files.data.empty() && plan.model.layers.front().kind == LayerKind::Embedding) {
    throw InputError("model " + plan.model.name +
                     " learns from text, and the plan names none; give one with --data FILE");
  }
  const int micro_batches = plan.replicas() * plan.micro_batches;
  const exec::DataShape shape{
      .samples = plan.micro_batch_size, .micro_batches = micro_batches, .seed = plan.training.seed};
  const auto data = request.forward ? nullptr : exec::make_data(plan.model, shape, files);
  std::optional<ForwardRun> forward;
  if (request.forward)
    forward.emplace(plan, shape, files, *request.forward, ranks.steps.value_or(0));
  exec::cpu::Training training;
  training.model = &plan.model;
  training.stages = plan.stages;
  training.micro_batch_size = plan.micro_batch_size;
  training.micro_batches = micro_batches;
  training.seed = plan.training.seed;
  training.optimizer = exec::optimizer_spec(plan.training.optimizer, plan.training.learning_rate);
  training.optimizer.clip_grad_norm = plan.training.clip_grad_norm;
  training.options.numerics = request.numerics;
  training.options.recompute = recompute_of(plan.model, plan.training.recompute);
  training.options.ranks.rows = plan.division().rows;
  training.options.ranks.fold = plan.division().fold;
  training.options.ranks.ring = plan.division().ring;
  training.data = data.get();
  training.verified_steps = request.verify ? 1 : 0;
  const std::optional<exec::Checkpoint> start = load_checkpoint(request, session);
  if (start) training.start = &*start;
  training.save = request.checkpoints.save;
  training.phases = &session.phases();
  if (forward) forward->use_in(training);
  training.clock = ranks.clock;

  const int first = training.first_step();
  const int all = forward ? forward->steps() : ranks.steps.value_or(plan.training.steps);
  exec::RunOptions options = ranks.options(forward ? all : steps_left(start, all));
  if (start && !forward) tell_start(*start, training, session);
  const InterruptScope scope;
  if (ranks.link != nullptr)
    require_same_inputs(*ranks.link, inputs_of_training(plan, program, training, all,
                                                        ranks.verify_payloads, request.cuda));
  options.on_step = ranks.on_step(first, all, session);
  DeviceResult result;
  if (request.cuda) {
    if (ranks.speaks()) tell_number_bytes(plan, *request.cuda, session);
    result = run_on_gpus(program, costs, training, options, *request.cuda, ranks.link,
                         ranks.speaks() ? &session : nullptr);
  } else {
    result = run_on_cpus(program, costs, training, options, ranks.link);
  }
  session.clear_progress();
  const exec::RunResult& run = run_of(result);
  if (run.outcome == exec::Outcome::Interrupted) throw Interrupted();
  if (!ranks.speaks() || !run.finished()) return result;
  if (forward) forward->save(*training_of(result)->evaluation, session);
  if (training.save)
    session.note("wrote " + exec::checkpoint_folder(training.save->folder, all).string());
  return result;
}

std::string weight_versions_text(const Program& program, const exec::cpu::CpuResult& result) {
  if (!program.asynchronous || result.peak_weight_versions.empty()) return "";
  std::string text = "most weight versions at once, by rank:";
  for (const int versions : result.peak_weight_versions) text += " " + std::to_string(versions);
  return text;
}

std::string clocks_text(const exec::RunResult& result) {
  std::string text;
  for (std::size_t p = 0; p < result.clocks.size(); ++p) {
    const exec::ClockError& clock = result.clocks[p];
    text += (p == 0 ? "rank " : "; rank ") + std::to_string(p) + ": offset " +
            std::to_string(clock.offset_ns) + " ns, drift " + std::to_string(clock.drift_ns) +
            " ns, error at most " + std::to_string(clock.bound_ns) + " ns";
  }
  return text;
}

bool agrees(const exec::VerifyReport& report, double most) {
  if (report.numerics == exec::Numerics::Exact)
    return report.gradients.bitwise && report.parameters.bitwise;
  return report.gradients.norm_rel <= most;  // false for NaN too
}

std::string verify_text(const exec::VerifyReport& report, int step, double most) {
  const exec::Difference& difference =
      report.gradients.bitwise ? report.parameters : report.gradients;
  const std::string what = report.gradients.bitwise ? "parameters after" : "gradients of";
  const std::string numerics(exec::to_string(report.numerics));
  const std::string of_step = " step " + std::to_string(step) + " ";
  std::string apart = "relative norm " + small_number(difference.norm_rel);
  if (std::isfinite(difference.norm_rel))
    apart += ", at most " + std::to_string(difference.max_ulp) + " ulp";
  if (!agrees(report, most)) {
    return "the " + what + of_step + "DIFFER from a serial run (" + numerics +
           " numerics): " + apart + ",\nworst in " + difference.worst + "\n";
  }
  return "the gradients of" + of_step + "agree with a serial run (" + numerics +
         " numerics): " + (report.gradients.bitwise ? "bit for bit" : apart) + "\n";
}

Json verify_fields(const std::optional<exec::VerifyReport>& report) {
  if (!report) return nullptr;
  return {{"numerics", exec::to_string(report->numerics)},
          {"max_ulp", report->gradients.max_ulp},
          {"norm_rel", report->gradients.norm_rel},
          {"bitwise", report->gradients.bitwise},
          {"parameters_bitwise", report->parameters.bitwise}};
}

}  // namespace pipewright::tools
