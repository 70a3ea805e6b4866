// pipewright doctor: what this build and this machine can do, and what is missing.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/units.hpp"
#include "tools/arguments.hpp"
#include "tools/build_facts.hpp"
#include "tools/commands.hpp"
#include "tools/exit_status.hpp"
#include "tools/modules.hpp"
#include "tools/session.hpp"
#include "tools/table.hpp"

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
  machine.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
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

void add_abilities(Table& table, std::string_view kind, const std::vector<Ability>& abilities) {
  for (const Ability& ability : abilities) {
    table.add({std::string(kind), ability.name, ability.works ? "works" : "no", ability.why},
              ability.works ? Ink::Plain : Ink::Dim);
  }
}

int run(const Arguments& /*arguments*/, Session& session) {
  const Machine machine = look_at_machine();
  const BuildFacts build = build_facts();
  if (session.json()) {
    session.print_result({{"version", build.version},
                          {"compiler", build.compiler},
                          {"blas", build.blas},
                          {"system", machine.system},
                          {"cores", machine.cores},
                          {"memory_bytes", machine.memory.value},
                          {"devices", fields_of(devices())},
                          {"transports", fields_of(transports())}});
    return kDone;
  }
  Table table({{"what"}, {"name"}, {"state"}, {"detail"}});
  table.add({"build", "pipewright", build.version, build.compiler});
  table.add({"build", "BLAS", "works", build.blas});
  table.add({"machine", "system", "", machine.system});
  table.add({"machine", "cores", std::to_string(machine.cores),
             machine.cores < 2 ? "ranks of a CPU run share one core" : ""});
  table.add({"machine", "memory", format_bytes(machine.memory), ""});
  add_abilities(table, "device", devices());
  add_abilities(table, "transport", transports());
  session.print(table.text(session.terminal()));
  return kDone;
}

}  // namespace

Command doctor_command() {
  Command command;
  command.name = "doctor";
  command.summary = "say what this build and this machine can do, and what is missing";
  command.examples = {{"doctor", "before the first run, and in a bug report"}};
  command.run = run;
  return command;
}

}  // namespace pipewright::tools
