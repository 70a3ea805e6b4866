#include "tools/running/cuda_flags.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "exec/devices/cuda/issue_order.hpp"
#include "exec/devices/cuda/slow_link.hpp"
#include "exec/transports/nccl/calls.hpp"
#include "exec/transports/nccl/read_back.hpp"
#include "sim/engine.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/table.hpp"
#include "tools/output/verdict.hpp"
#include "traces/analysis/action_gaps.hpp"

namespace pipewright::tools {

using exec::cuda::Precision;

Precision precision_of(const Arguments& arguments, const Model& model) {
  const bool exact = arguments.text_or("--numerics", "fast") == "exact";
  const std::string precision =
      arguments.text_or("--precision", model.bytes_per_element == 2 ? "bf16" : "fp32");
  if (exact && arguments.has("--precision"))
    throw InputError("--precision is cuBLAS's; --numerics exact has its own products");
  if (exact) return Precision::Exact;
  if (precision == "tf32") return Precision::Tf32;
  return precision == "bf16" ? Precision::Bfloat16 : Precision::Float32;
}

std::string precision_text(Precision precision) {
  if (precision == Precision::Exact) return "exact";
  if (precision == Precision::Tf32) return "tf32";
  return precision == Precision::Bfloat16 ? "bf16" : "fp32";
}

Flag precision_flag(const char* group, const char* help) {
  return {.group = group,
          .name = "--precision",
          .argument = "KIND",
          .help = help,
          .choices = {"fp32", "tf32", "bf16"},
          .checked = true};
}

namespace {

bool is_over_nccl(const Arguments& arguments) {
  return arguments.text_or("--transport", "local") == "nccl";
}

/// Why a Program is not run; of one that is, an ok report and no sentences.
struct Rejection {
  Program program;  // that the report is of
  WaitReport report;
  std::vector<std::string> sentences;
};

Rejection judge_issue_order(const Program& program, const CostTable& costs) {
  return {program, exec::cuda::issue_order_of(program, costs).stuck, {}};
}

Rejection judge_calls(const Program& program, const CostTable& costs) {
  auto read = exec::nccl::read_back(exec::nccl::calls_of(program, costs));
  WaitReport report = sim::check(read.program, costs);
  return {std::move(read.program), std::move(report), std::move(read.problems)};
}

}  // namespace

std::vector<Flag> cuda_flags() {
  return {
      {.group = "GPUs",
       .name = "--dry-run",
       .help = "with --transport nccl: show the communicators and the NCCL calls of each rank, and "
               "check them; with --device cuda: show the order in which one GPU would be given all "
               "ranks; no GPU is needed"},
      precision_flag("GPUs",
                     "of --device cuda: numbers are float32, with tf32 rounded where they are "
                     "multiplied; with bf16 activations, messages and what layers read of the "
                     "weights have 16 bits; sums, gradients and the weights themselves are float32 "
                     "(bf16 where the model's bytes_per_element is 2, else fp32)"),
      {.group = "GPUs",
       .name = "--slow-link",
       .argument = "BW",
       .help = "on --device cuda: a message is held as long as such a link would take, 25GB/s or "
               "with a latency 25GB/s+5us"},
      {.group = "GPUs",
       .name = "--cuda-graph",
       .help = "on --device cuda: the second step is captured as a CUDA graph of all ranks, over "
               "NCCL of each rank, and from the third on a step is one launch of it; a run that "
               "cannot is refused (where it can, runs of three steps and more do so unasked, but "
               "for those over NCCL)"},
      {.group = "GPUs",
       .name = "--no-cuda-graph",
       .help = "on --device cuda: every step is put on the GPU piece by piece"},
      {.group = "GPUs",
       .name = "--trace-kernels",
       .help = "with --trace, on --device cuda: the trace shows each kernel, copy and clearing of "
               "memory as CUPTI times it, below the action that it is of; the step that is shown "
               "is the last one then, and recording takes time"},
  };
}

void require_cuda_flags_fit(const Arguments& arguments) {
  if (is_over_nccl(arguments) && device_name(arguments, "") != "cuda")
    throw InputError("--transport nccl is between GPUs; it goes with --device cuda");
  if (device_name(arguments, "") != "cuda") {
    for (const char* flag :
         {"--slow-link", "--precision", "--cuda-graph", "--no-cuda-graph", "--trace-kernels"}) {
      if (arguments.has(flag)) throw InputError(std::string(flag) + " belongs to --device cuda");
    }
    return;
  }
  if (arguments.has("--clock")) throw InputError("--clock belongs to --device cpu and paced");
  if (arguments.has("--verify-payloads"))
    throw InputError("--verify-payloads: messages on GPUs carry no checksum; leave it out");
  if (arguments.has("--cuda-graph") && arguments.has("--no-cuda-graph"))
    throw InputError("--cuda-graph and --no-cuda-graph: take one of them");
  if (arguments.has("--trace-kernels") && !arguments.has("--trace"))
    throw InputError("--trace-kernels: the trace shows them; say where it goes, --trace FILE");
  const std::string transport = arguments.text_or("--transport", "local");
  if (transport == "mpi" || transport == "tcp")
    throw InputError("--device cuda does not run over --transport " + transport +
                     ": leave it out (all ranks in one process), or take --transport nccl (a GPU "
                     "a rank)");
}

CudaRequest cuda_request(const Arguments& arguments, const Subject& subject) {
  CudaRequest request;
  request.over_nccl = is_over_nccl(arguments);
  request.precision = precision_of(arguments, subject.plan()->model);
  request.records_work = arguments.has("--trace-kernels");
  if (arguments.has("--cuda-graph")) request.graph = GraphUse::Always;
  if (arguments.has("--no-cuda-graph")) request.graph = GraphUse::Never;
  if (const auto link = arguments.text("--slow-link"))
    request.hold_ns =
        transfer_ns(subject.program, subject.costs, exec::cuda::parse_slow_link(*link));
  return request;
}

double most_norm_rel(const std::optional<CudaRequest>& cuda) {
  return cuda ? most_norm_rel(cuda->precision) : kMostNormRel;
}

std::string enqueued_text(const Program& program, const exec::cuda::CudaResult& result) {
  if (result.enqueued_ns.empty() || result.steps.empty()) return "";
  const std::int64_t latest =
      *std::max_element(result.enqueued_ns.begin(), result.enqueued_ns.end());
  std::string text = "the host had enqueued the last step after " +
                     format_duration(Nanoseconds(latest)) + " of " +
                     format_duration(Nanoseconds(result.steps.back().step_ns)) + "\n";
  const auto gaps = traces::action_gaps(program, result.timeline);
  if (gaps.empty()) return text;
  return text + "between two actions that wait for nothing: " +
         format_duration(Nanoseconds(gaps[gaps.size() / 2])) + " in the median, " +
         format_duration(Nanoseconds(gaps[gaps.size() * 9 / 10])) + " or less in nine of ten\n";
}

void put_enqueued(const Program& program, const exec::cuda::CudaResult& result, Json& fields) {
  if (result.enqueued_ns.empty()) return;
  fields["enqueued_ns"] = result.enqueued_ns;
  const auto gaps = traces::action_gaps(program, result.timeline);
  if (gaps.empty()) return;
  fields["action_gap_ns"] = {{"count", gaps.size()},
                             {"median", gaps[gaps.size() / 2]},
                             {"nine_tenths", gaps[gaps.size() * 9 / 10]},
                             {"most", gaps.back()}};
}

std::string device_name(const Arguments& arguments, const std::string& otherwise) {
  return arguments.text_or("--device", is_over_nccl(arguments) ? "cuda" : otherwise);
}

std::optional<int> reject_stuck(const Subject& subject, const CudaRequest& request,
                                Session& session) {
  Rejection rejection = request.over_nccl ? judge_calls(subject.program, subject.costs)
                                          : judge_issue_order(subject.program, subject.costs);
  if (rejection.report.verdict == Verdict::Ok && rejection.sentences.empty()) return std::nullopt;
  rejection.sentences.emplace_back("nothing was given to a GPU");
  if (session.json()) {
    session.print_result(verdict_fields(rejection.program, rejection.report, rejection.sentences));
  } else {
    session.print(wrapped(subject.title, session.terminal().width, 0));
    session.print(
        verdict_text(rejection.program, rejection.report, rejection.sentences, session.terminal()));
  }
  return kAnswerIsNo;
}

}  // namespace pipewright::tools
