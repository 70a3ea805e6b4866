#include "tools/modules.hpp"

#include <filesystem>

#include "core/error.hpp"
#include "exec/mpi/mpi_wire.hpp"

namespace pipewright::tools {
namespace {

std::string cuda_state() {
  const bool driver = std::filesystem::exists("/dev/nvidiactl");
  return driver ? "this machine has an NVIDIA driver, but this version has no CUDA device yet"
                : "this machine has no NVIDIA driver, and this version has no CUDA device yet";
}

Ability mpi_state() {
  try {
    exec::mpi::load_module();
    return {"mpi", true, "ranks are processes that mpirun has started, on one machine or several"};
  } catch (const MachineError& error) {
    return {"mpi", false, error.what()};
  }
}

void require(const std::vector<Ability>& abilities, std::string_view kind, std::string_view name,
             std::string_view instead) {
  for (const Ability& ability : abilities) {
    if (ability.name == name && !ability.works) {
      throw MachineError(std::string(kind) + " " + ability.name + ": " + ability.why + "; use " +
                         std::string(instead));
    }
  }
}

}  // namespace

std::vector<Ability> devices() {
  return {{"cpu", true, "trains for real with OpenBLAS, a thread a rank"},
          {"paced", true, "takes exactly the time of the cost table; any plan or order"},
          {"cuda", false, cuda_state()}};
}

std::vector<Ability> transports() {
  return {{"local", true, "ranks are threads of this process"},
          mpi_state(),
          {"nccl", false, "this version has no NCCL transport yet"}};
}

void require_device(std::string_view name) {
  require(devices(), "device", name, "--device cpu, or --device paced");
}

void require_transport(std::string_view name) {
  require(transports(), "transport", name, "--transport local");
}

}  // namespace pipewright::tools
