// The state of a graph in training as a folder: each rank's parts in a file of its own, and
// state.json, which says how they were divided. Whoever reads, on whatever mesh and however
// divided, takes the parts that it needs from where they lie; everything is there bit for bit.
//
// state.json is written when all files are on the disk; a folder without it is no saved state. A
// save into a folder that has one has files of other names: until its own state.json takes the
// older one's place, that one holds. Every 64 KiB of an array has a checksum, in the head of its
// file, which is compared when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "exec/spmd/local_array.hpp"
#include "exec/spmd/state_description.hpp"

namespace pipewright::exec::graphs {

/// A folder to be read. Immutable; any number of threads may read from it.
class SavedState {
 public:
  /// Reads state.json alone. Throws InputError.
  explicit SavedState(std::filesystem::path folder);

  int step() const { return description_.step; }
  /// A part of an array of this shape. Opens the files alone that have something of it. Throws
  /// InputError with file and reason: there is no such array, it has another shape, a file is
  /// missing, damaged, or of another save. Adds what was read to `bytes`.
  LocalArray read(const std::string& name, const spmd::Shape& shape, const spmd::LocalPart& part,
                  std::int64_t& bytes) const;

 private:
  std::filesystem::path folder_;
  StateDescription description_;
};

/// Makes the folder; the number of the save that begins (StateDescription::save).
int begin_saving(const std::filesystem::path& folder);
/// The parts that this rank has to write, of all that it has by the names of the arrays.
void write_parts(const std::filesystem::path& folder, const StateDescription& description, int rank,
                 const std::map<std::string, const LocalArray*>& arrays);
/// All ranks have written: the folder holds this save from here on, and the files of others go.
void finish_saving(const std::filesystem::path& folder, const StateDescription& description);

}  // namespace pipewright::exec::graphs
