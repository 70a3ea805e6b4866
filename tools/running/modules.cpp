#include "tools/running/modules.hpp"

#include "core/base/error.hpp"
#include "exec/transports/nccl/library.hpp"
#include "exec/transports/process/mpi/wire.hpp"
#include "tools/running/gpu_facts.hpp"

namespace pipewright::tools {
namespace {

Ability cuda_state(const GpuFacts& facts) {
  if (!facts.why_no_gpu.empty()) return {"cuda", false, facts.why_no_gpu};
  return {"cuda", true,
          "trains on " +
              (facts.gpus.size() == 1 ? "the GPU" : std::to_string(facts.gpus.size()) + " GPUs") +
              " of this machine, several ranks on one of them each in a part of it"};
}

Ability nccl_state(const GpuFacts& facts) {
  if (!facts.why_no_nccl.empty()) return {"nccl", false, facts.why_no_nccl};
  if (!facts.why_no_gpu.empty()) return {"nccl", false, facts.why_no_gpu};
  return {"nccl", true,
          "ranks are threads of this process with a GPU each, and NCCL " +
              exec::nccl::version_text(facts.nccl_version) + " is between them"};
}

Ability mpi_state() {
  try {
    exec::mpi::load_module();
    return {"mpi", true, "ranks are processes that mpirun has started, on one machine or several"};
  } catch (const MachineError& error) {
    return {"mpi", false, error.what()};
  }
}

void require(const Ability& ability, std::string_view kind, std::string_view instead) {
  if (ability.works) return;
  throw MachineError(std::string(kind) + " " + ability.name + ": " + ability.why + "; use " +
                     std::string(instead));
}

}  // namespace

std::vector<Ability> devices(const GpuFacts& facts) {
  return {{"cpu", true, "trains for real with OpenBLAS, a thread a rank"},
          {"paced", true, "takes exactly the time of the cost table; any plan or order"},
          cuda_state(facts)};
}

std::vector<Ability> transports(const GpuFacts& facts) {
  return {{"local", true, "ranks are threads of this process"},
          mpi_state(),
          {"tcp", true, "ranks are processes that torchrun or a script has started"},
          nccl_state(facts)};
}

void require_device(std::string_view name) {
  if (name == "cuda")
    require(cuda_state(look_at_gpus()), "device", "--device cpu, or --device paced");
}

void require_transport(std::string_view name) {
  if (name == "mpi") require(mpi_state(), "transport", "--transport local");
  if (name == "nccl") require(nccl_state(look_at_gpus()), "transport", "--transport local");
}

}  // namespace pipewright::tools
