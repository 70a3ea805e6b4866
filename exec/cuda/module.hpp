// Finding and loading libpipewright_cuda.so, and what it says of this machine. The module stays
// loaded: its table is valid until the process ends. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "exec/cuda/module_api.h"

namespace pipewright::exec::cuda {

/// Where the module is looked for, in this order: beside the command, where it is installed, and in
/// the build folder.
std::vector<std::filesystem::path> module_places();

/// Throws MachineError that says what is missing. Does not ask for a GPU.
const pipewright_cuda& load_module();

/// Empty if there is the module, a driver that fits and at least one GPU of compute capability 8.0
/// or newer; else a sentence that says what is missing.
std::string why_no_gpu();

/// The same table, if there is a GPU. Throws MachineError with that sentence.
const pipewright_cuda& require_gpu();

/// Throws RunError with the table's own sentence if a call's status is not 0.
void require(const pipewright_cuda& cuda, int status);
/// The pointer itself; throws RunError if it is null.
void* required(const pipewright_cuda& cuda, void* made);

}  // namespace pipewright::exec::cuda
