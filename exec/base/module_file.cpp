#include "exec/base/module_file.hpp"

#include <dlfcn.h>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace {

using Entry = const void* (*)();

/// The table of a module that was loaded; null and why if it is not ours.
const void* table_of(void* loaded, const ModuleFile& module, const std::string& place,
                     std::string& why) {
  const auto entry = reinterpret_cast<Entry>(dlsym(loaded, module.entry));
  if (entry == nullptr && !module.no_entry.empty()) {
    why = module.no_entry;
    return nullptr;
  }
  const void* const table = entry == nullptr ? nullptr : entry();
  if (table != nullptr && *static_cast<const int*>(table) == module.abi) return table;
  why = place + " belongs to another version of Pipewright";
  return nullptr;
}

}  // namespace

std::vector<std::filesystem::path> installed_places(std::string_view file) {
  std::error_code error;
  const auto command = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto folder = command.parent_path();
  return {folder / file, folder.parent_path() / "lib" / "pipewright" / file};
}

std::vector<std::filesystem::path> places_of(const ModuleFile& module) {
  auto places = installed_places(module.file);
  if (!module.built_at.empty()) places.emplace_back(module.built_at);
  return places;
}

const void* load(const ModuleFile& module) {
  std::string why(module.not_there);
  for (const auto& place : places_of(module)) {
    if (!std::filesystem::exists(place)) continue;
    // Never closed: neither CUDA nor MPI can be unloaded. A second time costs nothing.
    void* const loaded = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) {
      why = std::string(dlerror()) + "; " + std::string(module.not_loaded);
      continue;
    }
    if (const void* const table = table_of(loaded, module, place.string(), why)) return table;
  }
  throw MachineError("the module " + std::string(module.file) + " cannot be loaded: " + why);
}

}  // namespace pipewright::exec
