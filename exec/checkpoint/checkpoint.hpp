// Checkpoints: the state of a training after a step, by the names of its parameters, so that any
// plan of the same model can go on from it (docs/plan-format.md).
//
// A checkpoint is a folder. Each rank writes its part, raw little-endian floats in one file, and
// nobody waits for anybody; checkpoint.json, which lists the parts with sizes and checksums, is
// written when all parts are on the disk. A folder without it is no checkpoint. So whatever stops,
// and when, the last finished checkpoint stays whole: a part's name holds its checksum and a part
// never replaces another one, and the manifest is replaced in one rename.
//
// Plain functions; several ranks, threads or processes may write parts into one folder at once.
// write_manifest() and prune() belong to one of them. Files that do not fit are InputErrors with
// file and reason; a disk that does not take them is a MachineError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.hpp"
#include "core/model/model.hpp"
#include "exec/base/durable_file.hpp"

namespace pipewright::exec {

/// What a parameter's arrays are called: its weights, and what the optimizer keeps of it.
inline constexpr std::string_view kValueSlot = "value";

/// The elements [first, first + values.size()) of an array of `total`. The whole of it, unless
/// ranks share an array (ZeRO).
struct StatePiece {
  std::string parameter, slot;
  std::int64_t first = 0, total = 0;
  std::span<const float> values;
};

/// Where a piece lies in its part's file.
struct StoredPiece {
  std::string parameter, slot;
  std::int64_t first = 0, total = 0, count = 0;
  std::int64_t offset_bytes = 0;
};

/// One rank's file.
struct CheckpointPart {
  std::string file;
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;
  std::vector<StoredPiece> pieces;
};
Json to_json(const CheckpointPart& part);
CheckpointPart read_checkpoint_part(const JsonCursor& value);

/// What is true of the whole training at that moment.
struct CheckpointFacts {
  Model model;
  int step = 0;     // steps done; the data of step `step` come next
  int updates = 0;  // of the weights: the steps, or more in an asynchronous schedule
  std::string optimizer;
  std::uint64_t seed = 1;
  std::string numerics;
  int micro_batches = 1, micro_batch_size = 1;
};

/// What a run saves, and where. The state after the last step is always saved.
struct CheckpointSpec {
  std::filesystem::path folder;  // of all checkpoints
  int every = 0;                 // steps; 0: only the last one
  int keep = 0;                  // so many of the newest; 0: all
  DiskWatch watch;
};

/// "step-00000012" in the folder of all checkpoints.
std::filesystem::path checkpoint_folder(const std::filesystem::path& all, int step);

/// Writes a rank's part, a piece after another, into the checkpoint's folder, which is made where
/// it is missing. Nothing is left of a part that is not finished.
class CheckpointPartWriter {
 public:
  CheckpointPartWriter(const std::filesystem::path& folder, int rank, const DiskWatch& watch = {});

  void add(const StatePiece& piece);
  CheckpointPart finish();

 private:
  const std::string tag_;
  DurableFile file_;
  CheckpointPart part_;
};
/// All of them at once.
CheckpointPart write_checkpoint_part(const std::filesystem::path& folder, int rank,
                                     std::span<const StatePiece> pieces,
                                     const DiskWatch& watch = {});
/// Makes the folder a checkpoint. All parts have been written. What an unfinished save has left
/// there is removed.
void write_manifest(const std::filesystem::path& folder, const CheckpointFacts& facts,
                    std::span<const CheckpointPart> parts, const DiskWatch& watch = {});
/// Removes the parts of a save that failed, which no manifest names. Does nothing in a folder that
/// is a checkpoint already.
void remove_parts(const std::filesystem::path& folder, std::span<const CheckpointPart> parts,
                  const DiskWatch& watch = {});
/// Removes from the folder of all checkpoints what saves that were killed have left: temporary
/// files, and folders of parts without a manifest. Nobody else may save there.
void remove_unfinished_checkpoints(const std::filesystem::path& all, const DiskWatch& watch = {});
/// Keeps the newest `keep` checkpoints of the folder and removes older ones, finished or not.
void prune_checkpoints(const std::filesystem::path& all, int keep, const DiskWatch& watch = {});

/// A checkpoint to begin from. Immutable; any number of threads may read from it.
class Checkpoint {
 public:
  /// `path`: a checkpoint's folder, or a folder of checkpoints, of which the newest finished one is
  /// taken. Reads the manifest and every part once, and compares sizes and checksums; the arrays
  /// fill the parts and leave no gap.
  static Checkpoint open(const std::filesystem::path& path);

  const std::filesystem::path& folder() const { return folder_; }
  const CheckpointFacts& facts() const { return facts_; }
  /// False: it was written before checkpoint.json had a checksum of its own.
  bool is_sealed() const { return is_sealed_; }
  /// All arrays, by parameter and slot, with their elements.
  std::map<std::pair<std::string, std::string>, std::int64_t> sizes() const;
  /// Elements of the array; nullopt if it is not there.
  std::optional<std::int64_t> size_of(const std::string& parameter, std::string_view slot) const;
  /// The elements [first, first + into.size()) of it.
  void read(const std::string& parameter, std::string_view slot, std::span<float> into,
            std::int64_t first = 0) const;

 private:
  struct Place {
    std::size_t part = 0;
    StoredPiece piece;
  };

  std::string file_of(const CheckpointPart& part) const;
  std::string manifest() const;
  void check_part(const CheckpointPart& part) const;
  void index_pieces();
  void require_filled_parts() const;
  void require_checksum(std::string text, const std::string& crc);

  std::filesystem::path folder_;
  CheckpointFacts facts_;
  bool is_sealed_ = true;
  std::vector<CheckpointPart> parts_;
  std::map<std::pair<std::string, std::string>, std::vector<Place>> arrays_;  // pieces by `first`
};

}  // namespace pipewright::exec
