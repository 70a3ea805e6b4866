#include "tools/cuda_flags.hpp"

#include "core/error.hpp"
#include "exec/cuda/issue_order.hpp"
#include "exec/cuda/slow_link.hpp"
#include "tools/exit_status.hpp"
#include "tools/table.hpp"
#include "tools/verdict.hpp"

namespace pipewright::tools {
using exec::cuda::Precision;

Precision precision_of(const Arguments& arguments) {
  const bool exact = arguments.text_or("--numerics", "fast") == "exact";
  const std::string precision = arguments.text_or("--precision", "fp32");
  if (exact && arguments.has("--precision"))
    throw InputError("--precision is cuBLAS's; --numerics exact has its own products");
  if (exact) return Precision::Exact;
  if (precision == "tf32") return Precision::Tf32;
  return precision == "bf16" ? Precision::Bfloat16 : Precision::Float32;
}

Flag precision_flag(const char* group, const char* help) {
  return {.group = group,
          .name = "--precision",
          .argument = "KIND",
          .help = help,
          .choices = {"fp32", "tf32", "bf16"},
          .checked = true};
}

std::vector<Flag> cuda_flags() {
  return {
      {.group = "GPUs",
       .name = "--dry-run",
       .help = "with --transport nccl: show the communicators and the NCCL calls of each rank, and "
               "check them; with --device cuda: show the order in which one GPU would be given all "
               "ranks; no GPU is needed"},
      precision_flag("GPUs",
                     "of cuBLAS's products on --device cuda: factors as they are, or rounded to "
                     "TF32 or bfloat16; sums are float32 (fp32)"),
      {.group = "GPUs",
       .name = "--slow-link",
       .argument = "BW",
       .help = "on --device cuda: a message is held as long as such a link would take, 25GB/s or "
               "with a latency 25GB/s+5us"},
  };
}

void require_cuda_flags_fit(const Arguments& arguments) {
  if (arguments.text_or("--device", "") != "cuda") {
    for (const char* flag : {"--slow-link", "--precision"}) {
      if (arguments.has(flag)) throw InputError(std::string(flag) + " belongs to --device cuda");
    }
    return;
  }
  if (arguments.has("--clock")) throw InputError("--clock belongs to --device cpu and paced");
  if (arguments.text_or("--transport", "local") == "mpi")
    throw InputError("--device cuda has all ranks in one process; leave out --transport mpi");
}

CudaRequest cuda_request(const Arguments& arguments, const Subject& subject) {
  CudaRequest request;
  request.precision = precision_of(arguments);
  if (const auto link = arguments.text("--slow-link"))
    request.hold_ns =
        transfer_ns(subject.program, subject.costs, exec::cuda::parse_slow_link(*link));
  return request;
}

double most_norm_rel(const std::optional<CudaRequest>& cuda) {
  return cuda ? most_norm_rel(cuda->precision) : kMostNormRel;
}

std::optional<int> reject_without_issue_order(const Subject& subject, Session& session) {
  const auto issued = exec::cuda::issue_order_of(subject.program, subject.costs);
  if (issued.is_whole()) return std::nullopt;
  const std::string why = "no order of enqueuing lets this end, so nothing was given to a GPU";
  if (session.json()) {
    session.print_result(verdict_fields(subject.program, issued.stuck, {why}));
  } else {
    session.print(wrapped(subject.title, session.terminal().width, 0));
    session.print(verdict_text(subject.program, issued.stuck, {why}, session.terminal()));
  }
  return kAnswerIsNo;
}

}  // namespace pipewright::tools
