#include "tools/running/gpu_facts.hpp"

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "exec/devices/cuda/module.hpp"
#include "exec/transports/nccl/library.hpp"

namespace pipewright::tools {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

GpuFacts look_at_gpus() {
  GpuFacts facts;
  try {
    const pipewright_cuda& cuda = exec::cuda::load_module();
    cuda.versions(&facts.versions);
    facts.why_no_gpu = exec::cuda::why_no_gpu();
    facts.why_no_cudnn = exec::cuda::why_no_cudnn(cuda);
    if (facts.why_no_cudnn.empty()) facts.cudnn_version = cuda.attention_version();
    facts.why_no_nvtx = exec::cuda::why_no_nvtx(cuda);
    facts.why_no_cupti = exec::cuda::why_no_cupti(cuda);
    if (facts.why_no_cupti.empty()) facts.cupti_version = cuda.activities_version();
    for (int i = 0; i < cuda.gpus(); ++i) {
      pipewright_cuda_gpu gpu{};
      if (cuda.gpu(i, &gpu) == 0) facts.gpus.push_back(gpu);
    }
  } catch (const MachineError& error) {
    facts.why_no_module = facts.why_no_gpu = facts.why_no_nccl = facts.why_no_cudnn =
        facts.why_no_nvtx = facts.why_no_cupti = error.what();
    return facts;
  }
  try {
    const pipewright_nccl& nccl = exec::nccl::load_nccl();
    facts.nccl_version = nccl.version();
    facts.nccl_header_version = nccl.header_version;
  } catch (const MachineError& error) {
    facts.why_no_nccl = error.what();
  }
  return facts;
}

std::string gpu_text(const pipewright_cuda_gpu& gpu) {
  std::string text = std::to_string(gpu.sms) + " SMs, " + format_bytes(Bytes(gpu.memory_bytes)) +
                     ", compute capability " + std::to_string(gpu.major) + "." +
                     std::to_string(gpu.minor);
  return text + (gpu.least_partition_sms > 0
                     ? ", partitions of " + std::to_string(gpu.least_partition_sms) +
                           " SMs and more (green contexts)"
                     : ", no partitions: its driver has no green contexts");
}

Json gpu_fields(const GpuFacts& facts) {
  Json gpus = Json::array();
  for (const pipewright_cuda_gpu& gpu : facts.gpus)
    gpus.push_back(
        {{"name", gpu.name},
         {"sms", gpu.sms},
         {"memory_bytes", gpu.memory_bytes},
         {"compute_capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor)},
         {"least_partition_sms", gpu.least_partition_sms},
         {"partition_alignment_sms", gpu.partition_alignment_sms}});
  return {{"why_no_module", text_or_null(facts.why_no_module)},
          {"why_no_gpu", text_or_null(facts.why_no_gpu)},
          {"why_no_nccl", text_or_null(facts.why_no_nccl)},
          {"why_no_cudnn", text_or_null(facts.why_no_cudnn)},
          {"why_no_nvtx", text_or_null(facts.why_no_nvtx)},
          {"why_no_cupti", text_or_null(facts.why_no_cupti)},
          {"cuda_runtime", facts.versions.runtime},
          {"cuda_driver", facts.versions.driver},
          {"cublas", facts.versions.blas},
          {"nccl", facts.nccl_version},
          {"cudnn", facts.cudnn_version},
          {"cupti", facts.cupti_version},
          {"gpus", std::move(gpus)}};
}

}  // namespace pipewright::tools
