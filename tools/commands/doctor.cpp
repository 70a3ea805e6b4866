// pipewright doctor: what this build and this machine can do, and what is missing.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/units.hpp"
#include "exec/devices/cuda/module.hpp"
#include "exec/transports/nccl/library.hpp"
#include "planner/base/cores.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/build_facts.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/running/gpu_facts.hpp"
#include "tools/running/modules.hpp"

namespace pipewright::tools {
namespace {

struct Machine {
  std::string system;
  int cores = 1;
  Bytes memory;
};

Machine look_at_machine() {
  Machine machine;
  utsname name{};
  if (uname(&name) == 0)
    machine.system = std::string(name.sysname) + " " + name.release + " " + name.machine;
  machine.cores = planner::cores_of_this_machine();
  machine.memory = Bytes(std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  return machine;
}

Json fields_of(const std::vector<Ability>& abilities) {
  Json list = Json::array();
  for (const Ability& ability : abilities) {
    list.push_back({{"name", ability.name}, {"works", ability.works}, {"why", ability.why}});
  }
  return list;
}

/// "device     cuda        no     …", the last column wrapped.
void print_line(Session& session, std::string_view kind, const std::string& name,
                std::string_view state, const std::string& detail, Ink ink = Ink::Plain) {
  constexpr int kDetailColumn = 31;
  std::string line;
  for (const auto& [text, column] : {std::pair<std::string_view, std::size_t>(kind, 11),
                                     std::pair<std::string_view, std::size_t>(name, 23),
                                     std::pair<std::string_view, std::size_t>(state, 31)}) {
    line += text;
    line.resize(std::max(line.size() + 1, column), ' ');
  }
  const std::string details = wrapped(detail, session.terminal().width, kDetailColumn);
  if (details.empty()) line.erase(line.find_last_not_of(' ') + 1);
  line += details.empty() ? "\n" : details.substr(kDetailColumn);
  session.print(painted(session.terminal(), ink, line));
}

void print_abilities(Session& session, std::string_view kind,
                     const std::vector<Ability>& abilities) {
  for (const Ability& ability : abilities) {
    print_line(session, kind, ability.name, ability.works ? "works" : "no", ability.why,
               ability.works ? Ink::Plain : Ink::Dim);
  }
}

void print_gpus(Session& session, const GpuFacts& facts) {
  if (!facts.why_no_module.empty()) {
    print_line(session, "gpu", "module", "no", facts.why_no_module, Ink::Dim);
    return;
  }
  print_line(session, "gpu", "module", "works",
             "CUDA " + exec::cuda::version_text(facts.versions.runtime) + ", cuBLAS " +
                 std::to_string(facts.versions.blas));
  print_line(session, "gpu", "driver", facts.versions.driver > 0 ? "works" : "no",
             facts.versions.driver > 0
                 ? "for CUDA " + exec::cuda::version_text(facts.versions.driver) + " and older"
                 : "install NVIDIA's driver, and look with nvidia-smi",
             facts.versions.driver > 0 ? Ink::Plain : Ink::Dim);
  print_line(
      session, "gpu", "NCCL", facts.why_no_nccl.empty() ? "works" : "no",
      facts.why_no_nccl.empty() ? exec::nccl::version_text(facts.nccl_version) : facts.why_no_nccl,
      facts.why_no_nccl.empty() ? Ink::Plain : Ink::Dim);
  print_line(session, "gpu", "cuDNN", facts.why_no_cudnn.empty() ? "works" : "no",
             facts.why_no_cudnn.empty() ? exec::nccl::version_text(facts.cudnn_version)
                                        : facts.why_no_cudnn,
             facts.why_no_cudnn.empty() ? Ink::Plain : Ink::Dim);
  print_line(session, "gpu", "NVTX", facts.why_no_nvtx.empty() ? "works" : "no",
             facts.why_no_nvtx.empty() ? "Nsight shows actions" : facts.why_no_nvtx,
             facts.why_no_nvtx.empty() ? Ink::Plain : Ink::Dim);
  print_line(
      session, "gpu", "CUPTI", facts.why_no_cupti.empty() ? "works" : "no",
      facts.why_no_cupti.empty() ? "traces show kernels (run --trace-kernels)" : facts.why_no_cupti,
      facts.why_no_cupti.empty() ? Ink::Plain : Ink::Dim);
  for (std::size_t i = 0; i < facts.gpus.size(); ++i)
    print_line(session, "gpu", std::to_string(i), "",
               std::string(facts.gpus[i].name) + ": " + gpu_text(facts.gpus[i]));
}

int run_doctor(const Arguments& /*arguments*/, Session& session) {
  const Machine machine = look_at_machine();
  const BuildFacts build = build_facts();
  const GpuFacts facts = look_at_gpus();
  if (session.json()) {
    session.print_result({{"version", build.version},
                          {"compiler", build.compiler},
                          {"blas", build.blas},
                          {"system", machine.system},
                          {"cores", machine.cores},
                          {"memory_bytes", machine.memory.value},
                          {"gpu", gpu_fields(facts)},
                          {"devices", fields_of(devices(facts))},
                          {"transports", fields_of(transports(facts))}});
    return kDone;
  }
  print_line(session, "build", "pipewright", build.version, build.compiler);
  print_line(session, "build", "BLAS", build.has_blas ? "works" : "no", build.blas);
  print_line(session, "machine", "system", "", machine.system);
  print_line(session, "machine", "cores", std::to_string(machine.cores),
             machine.cores < 2 ? "ranks of a CPU run share one core" : "");
  print_line(session, "machine", "memory", format_bytes(machine.memory), "");
  print_gpus(session, facts);
  print_abilities(session, "device", devices(facts));
  print_abilities(session, "transport", transports(facts));
  return kDone;
}

}  // namespace

Command doctor_command() {
  Command command;
  command.name = "doctor";
  command.summary = "say what this build and this machine can do, and what is missing";
  command.examples = {{"doctor", "before the first run, and in a bug report"}};
  command.run = run_doctor;
  return command;
}

}  // namespace pipewright::tools
