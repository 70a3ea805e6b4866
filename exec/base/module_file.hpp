// The modules that are loaded at run time, if they are installed: libpipewright_mpi.so and
// libpipewright_cuda.so. Each has an entry that gives a table of C functions whose first field is
// the number of its layout. A module stays loaded until the process ends. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::exec {

struct ModuleFile {
  std::string_view file;      // "libpipewright_mpi.so"
  std::string_view built_at;  // where the build has put it; may be empty
  const char* entry;          // the name of a function without arguments
  int abi;                    // of the table that it gives
  /// What the error tells the user to do: if there is no such file; after the loader's words, if it
  /// cannot be loaded; and if it has no such entry (empty: the module is of another version).
  std::string_view not_there, not_loaded, no_entry = {};
};

/// Where a library of our own is installed, in this order: beside the command, and in
/// lib/pipewright beside the command's folder, as packages and wheels have it.
std::vector<std::filesystem::path> installed_places(std::string_view file);

/// Where a module is looked for, in this order: where it is installed, and where it was built.
std::vector<std::filesystem::path> places_of(const ModuleFile& module);

/// The table. Throws MachineError that says what is missing and what to do.
const void* load(const ModuleFile& module);

}  // namespace pipewright::exec
