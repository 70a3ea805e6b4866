// Checkpoints as safetensors files, and back, with every bit. An array keeps its name: a parameter
// that of its weights, what the optimizer keeps of it "NAME:SLOT".
#pragma once

#include <filesystem>
#include <optional>

#include "exec/checkpoint/checkpoint.hpp"

namespace pipewright::exec {

/// What a file has and a checkpoint has not, or the other way round.
struct Exchanged {
  std::int64_t arrays = 0, bytes = 0;
  std::int64_t kept = 0;  // arrays that an import took from `like`
};

/// With `all`, what the optimizer keeps too. The file also says what is true of the training, so
/// that it can come back by itself. Throws MachineError.
Exchanged export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file,
                            bool all);

/// Writes a checkpoint of the file's arrays, and returns its folder in `all_checkpoints`. With
/// `like` it is that one with these arrays in the place of its own; else the file has to come from
/// export_checkpoint(). Throws InputError for arrays that do not fit.
std::filesystem::path import_checkpoint(const std::filesystem::path& file,
                                        const std::optional<Checkpoint>& like,
                                        const std::filesystem::path& all_checkpoints,
                                        Exchanged& exchanged);

}  // namespace pipewright::exec
