// The flags of run that belong to GPUs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"
#include "tools/running/training.hpp"

namespace pipewright::tools {

/// --dry-run, --precision, --slow-link, --cuda-graph, --no-cuda-graph, --trace-kernels.
std::vector<Flag> cuda_flags();

/// Throws InputError if one of them is given without the flag it belongs to, or --device cuda with
/// a flag that it excludes.
void require_cuda_flags_fit(const Arguments& arguments);

/// --precision, and what it and --numerics together ask for, else what the model's numbers are.
/// Throws InputError.
Flag precision_flag(const char* group, const char* help);
exec::cuda::Precision precision_of(const Arguments& arguments, const Model& model);
/// As --precision takes it; "exact" of --numerics exact.
std::string precision_text(exec::cuda::Precision precision);

/// Of --device cuda; the subject has a plan. Throws InputError.
CudaRequest cuda_request(const Arguments& arguments, const Subject& subject);
/// How far gradients may be apart; `cuda` null: on CPUs.
double most_norm_rel(const std::optional<CudaRequest>& cuda);

/// How long after the start of the last step the host had enqueued all of it, and the time between
/// two actions on a GPU that wait for nothing; empty where no step ended.
std::string enqueued_text(const Program& program, const exec::cuda::CudaResult& result);
/// The same of --json: "enqueued_ns" by rank, and "action_gap_ns".
void put_enqueued(const Program& program, const exec::cuda::CudaResult& result, Json& fields);

/// "cuda" where messages go over NCCL, or as --device says; else `otherwise`.
std::string device_name(const Arguments& arguments, const std::string& otherwise);

/// A Program that gets stuck has no order in which one GPU could be given it, and its calls of NCCL
/// get stuck: says why, as check does, and returns the exit status. Nothing: it ends.
std::optional<int> reject_stuck(const Subject& subject, const CudaRequest& request,
                                Session& session);

}  // namespace pipewright::tools
