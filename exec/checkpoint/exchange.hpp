// Checkpoints as safetensors files, and back, with every bit. An array keeps its name: a parameter
// that of its weights, what the optimizer keeps of it "NAME:SLOT"; or has that of another program,
// and its layout.
#pragma once

#include <filesystem>
#include <optional>

#include "exec/checkpoint/array_names.hpp"
#include "exec/checkpoint/checkpoint.hpp"

namespace pipewright::exec {

/// What a file has and a checkpoint has not, or the other way round.
struct Exchanged {
  std::int64_t arrays = 0, bytes = 0;
  std::int64_t kept = 0;  // arrays that an import took from `like`
};

/// With `all`, what the optimizer keeps too. The file also says what is true of the training, so
/// that it can come back by itself, but for names of another program. Throws MachineError, and
/// InputError for names that are not about its arrays or give two of them one name.
Exchanged export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file,
                            bool all, const ArrayNames& names = {});

/// Writes a checkpoint of the file's arrays, and returns its folder in `all_checkpoints`. With
/// `like` it is that one with these arrays in the place of its own, which `names` are about; else
/// the file has to come from export_checkpoint() without names. Throws InputError for arrays that
/// do not fit.
std::filesystem::path import_checkpoint(const std::filesystem::path& file,
                                        const std::optional<Checkpoint>& like,
                                        const std::filesystem::path& all_checkpoints,
                                        Exchanged& exchanged, const ArrayNames& names = {});

}  // namespace pipewright::exec
