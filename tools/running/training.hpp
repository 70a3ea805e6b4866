// A plan on this machine's CPUs or GPUs, for run and demo: data, training, verification.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/program/program.hpp"
#include "exec/base/numerics.hpp"
#include "exec/data/data.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/transports/local/transport.hpp"
#include "exec/transports/process/link.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/checkpoint_flags.hpp"
#include "tools/running/device_result.hpp"
#include "tools/running/forward_run.hpp"
#include "tools/running/run_log_writer.hpp"

namespace pipewright::tools {

/// The largest relative norm of a gradient's difference that rounding explains.
inline constexpr double kMostNormRel = 1e-6;

/// Whether steps are one CUDA graph each, from the third one on.
enum class GraphUse : std::uint8_t { WhereAllowed, Always, Never };

/// On GPUs instead of CPUs.
struct CudaRequest {
  exec::cuda::Precision precision = exec::cuda::Precision::Float32;
  std::vector<std::int64_t> hold_ns;  // exec::cuda::CudaTraining
  GraphUse graph = GraphUse::WhereAllowed;
  bool over_nccl = false;     // a GPU a rank; else messages are copies in this process
  bool records_work = false;  // exec::cuda::CudaTraining
};
/// The same where numbers are rounded: ten bits of a TF32, where they are multiplied; eight of a
/// bfloat16, wherever they lie in memory (PyTorch's own is as far from its float32:
/// docs/decisions/0075-sixteen-bits.md).
double most_norm_rel(exec::cuda::Precision precision);

/// How ranks run, whatever they compute.
struct RankRequest {
  std::optional<int> steps;  // instead of the plan's, or of one
  std::int64_t watchdog_ns = 30'000'000'000;
  exec::local::ClockKind clock = exec::local::ClockKind::Wall;
  int flight_entries = exec::kDefaultFlightEntries;
  std::function<void(const exec::RunResult&)> on_overdue;
  bool verify_payloads = false;
  exec::mpi::Link* link = nullptr;  // a rank a process; null: a rank a thread
  std::string header;               // of the steps' lines (tools/output/step_lines.hpp)
  RunLogWriter* log = nullptr;      // of the process that prints; null: none

  /// Of the processes of a job, process 0 alone prints.
  bool speaks() const { return link == nullptr || link->process() == 0; }
  /// All but on_step.
  exec::RunOptions options(int steps_now) const;
  /// For RunOptions::on_step: steps `first` + 1 to `all` of the training on stdout and in the log.
  std::function<void(int, const exec::StepResult&)> on_step(int first, int all,
                                                            Session& session) const;
};

/// What ranks that compute do with the plan's model.
struct TrainingRequest {
  std::optional<exec::DataFiles> data;  // instead of the plan's
  bool verify = false;                  // the first step against a serial run
  CheckpointRequest checkpoints;
  std::optional<ForwardRequest> forward;  // evaluate or predict instead
  exec::Numerics numerics = exec::Numerics::Fast;
  std::optional<CudaRequest> cuda;
};

/// Throws MachineError with the plan's own words (Plan::executable) if that kind of device, "cpu"
/// or "cuda", does not run it.
void require_executable(const Plan& plan, const std::string& device);

/// Trains with the Program of a run of the plan (planner/plans/run_of_plan.hpp), or evaluates or
/// predicts with a forward-only Program; Ctrl-C ends it with Interrupted, all ranks joined. Throws
/// InputError for data that does not fit, MachineError if the plan is for another kind of machine
/// or does not fit into its memory. The result is of CPUs or of GPUs.
DeviceResult train(const Plan& plan, const Program& program, const CostTable& costs,
                   const RankRequest& ranks, const TrainingRequest& request, Session& session);

/// Of a schedule with weight versions: how many of each rank's weights lived at once, at most.
std::string weight_versions_text(const Program& program, const exec::cpu::CpuResult& result);

/// "rank 1: offset 120 ns, drift 3 ns, error at most 700 ns; …", by process; empty where all ranks
/// are threads.
std::string clocks_text(const exec::RunResult& result);

/// True if the gradients agree as far as rounding allows; exact numerics allow no difference, in
/// the updated parameters neither.
bool agrees(const exec::VerifyReport& report, double most = kMostNormRel);
/// `step`: the one that was compared, counted from 1.
std::string verify_text(const exec::VerifyReport& report, int step, double most = kMostNormRel);
Json verify_fields(const std::optional<exec::VerifyReport>& report);

}  // namespace pipewright::tools
