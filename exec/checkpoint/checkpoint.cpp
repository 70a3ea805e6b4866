// The reading half of exec/checkpoint/checkpoint.hpp; exec/checkpoint/checkpoint_write.cpp has the
// other.
#include "exec/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/base/error.hpp"
#include "exec/checkpoint/checkpoint_json.hpp"

namespace pipewright::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = std::size_t{1} << 20;

bool is_step_folder(const fs::path& folder) {
  return folder.filename().string().starts_with("step-");
}

bool is_finished(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kManifestName, ignored);
}

/// The folder with the manifest: `path` itself, or the newest finished one in it.
fs::path finished_folder(const fs::path& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) {
    throw InputError(path.string(), "", "is no folder; name one that --save-checkpoint has filled");
  }
  if (is_finished(path)) return path;
  fs::path newest;
  bool unfinished = false;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (!is_step_folder(entry.path())) continue;
    if (!is_finished(entry.path())) {
      unfinished = true;
    } else if (newest.empty() || newest.filename() < entry.path().filename()) {
      newest = entry.path();
    }
  }
  if (!newest.empty()) return newest;
  throw InputError(path.string(), "",
                   unfinished ? "holds only checkpoints that were not finished (without "
                                "checkpoint.json); train from the beginning"
                              : "holds no checkpoint; name a folder that --save-checkpoint has "
                                "filled");
}

}  // namespace

std::string Checkpoint::file_of(const CheckpointPart& part) const {
  return (folder_ / part.file).string();
}

std::string Checkpoint::manifest() const { return (folder_ / kManifestName).string(); }

/// Sizes first, so that the error calls a truncated file truncated.
void Checkpoint::check_part(const CheckpointPart& part) const {
  const std::string file = file_of(part);
  std::error_code failure;
  const std::uintmax_t found = fs::file_size(file, failure);
  if (failure) throw InputError(file, "", "cannot be read: " + failure.message());
  const auto bytes = static_cast<std::int64_t>(found);
  if (bytes != part.bytes) {
    throw InputError(file, "",
                     std::string(bytes < part.bytes ? "is truncated: " : "is too long: ") +
                         "it has " + std::to_string(bytes) + " bytes, the checkpoint " +
                         std::to_string(part.bytes) + "; load an older checkpoint");
  }
  std::ifstream stream(file, std::ios::binary);
  std::vector<char> block(kBlock);
  std::uint32_t crc = 0;
  while (stream && stream.peek() != std::ifstream::traits_type::eof()) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    crc = crc32_of(
        std::as_bytes(std::span(block.data(), static_cast<std::size_t>(stream.gcount()))), crc);
  }
  if (crc != part.crc) {
    throw InputError(file, "",
                     "is damaged: its checksum is not the one that checkpoint.json names; load an "
                     "older checkpoint");
  }
}

void Checkpoint::index_pieces() {
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    for (const StoredPiece& piece : parts_[p].pieces) {
      arrays_[{piece.parameter, piece.slot}].push_back({p, piece});
    }
  }
  const std::string file = manifest();
  for (auto& [name, places] : arrays_) {
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return std::pair(a.piece.first, a.piece.count) < std::pair(b.piece.first, b.piece.count);
    });
    std::int64_t next = 0;
    for (const Place& place : places) {
      if (place.piece.first != next || place.piece.total != places.front().piece.total) {
        throw InputError(
            file, "",
            "the pieces of \"" + name.first + "\" (" + name.second + ") do not follow one another");
      }
      next += place.piece.count;
    }
    if (next != places.front().piece.total) {
      throw InputError(file, "",
                       "a piece of \"" + name.first + "\" (" + name.second +
                           ") is missing; load an older checkpoint");
    }
  }
}

/// As they were written: one after another, from the first byte of a part to its last.
void Checkpoint::require_filled_parts() const {
  for (const CheckpointPart& part : parts_) {
    std::vector<std::pair<std::int64_t, std::int64_t>> places;  // bytes: from, to
    for (const StoredPiece& piece : part.pieces)
      places.emplace_back(piece.offset_bytes, piece.offset_bytes + piece.count * 4);
    std::sort(places.begin(), places.end());
    std::int64_t next = 0;
    bool fills = true;
    for (const auto& [from, to] : places) {
      fills = fills && from == next;
      next = to;
    }
    if (fills && next == part.bytes) continue;
    throw InputError(manifest(), "",
                     "the arrays of " + part.file + " do not fill its " +
                         std::to_string(part.bytes) +
                         " bytes one after another; load an older checkpoint");
  }
}

/// Finds a manifest that can be read and is wrong. One without a checksum, of an older version, can
/// only be compared with its folder's name.
void Checkpoint::require_checksum(std::string text, const std::string& crc) {
  is_sealed_ = !crc.empty();
  if (is_sealed_ && !has_checksum(std::move(text), crc)) {
    throw InputError(manifest(), "",
                     "is damaged, or was changed by hand: its checksum is not the one that it "
                     "names; load an older checkpoint");
  }
  const std::string name = folder_.filename().string();
  if (!is_sealed_ && is_step_folder(folder_) &&
      name != checkpoint_folder("", facts_.step).string()) {
    throw InputError(manifest(), "/step",
                     "expected the step of its folder, " + name + "; load an older checkpoint");
  }
}

Checkpoint Checkpoint::open(const fs::path& path) {
  Checkpoint checkpoint;
  checkpoint.folder_ = finished_folder(path);
  const std::string file = checkpoint.manifest();
  std::string text = read_text(file);
  const Json document = parse_json(text, file);
  CheckpointManifest manifest = read_checkpoint_manifest(JsonCursor(document, file));
  checkpoint.facts_ = std::move(manifest.facts);
  checkpoint.parts_ = std::move(manifest.parts);
  checkpoint.index_pieces();
  checkpoint.require_filled_parts();
  checkpoint.require_checksum(std::move(text), manifest.crc);
  for (const CheckpointPart& part : checkpoint.parts_) checkpoint.check_part(part);
  return checkpoint;
}

std::map<std::pair<std::string, std::string>, std::int64_t> Checkpoint::sizes() const {
  std::map<std::pair<std::string, std::string>, std::int64_t> sizes;
  for (const auto& [name, places] : arrays_) sizes[name] = places.front().piece.total;
  return sizes;
}

std::optional<std::int64_t> Checkpoint::size_of(const std::string& parameter,
                                                std::string_view slot) const {
  const auto found = arrays_.find({parameter, std::string(slot)});
  if (found == arrays_.end()) return std::nullopt;
  return found->second.front().piece.total;
}

void Checkpoint::read(const std::string& parameter, std::string_view slot, std::span<float> into,
                      std::int64_t first) const {
  const auto found = arrays_.find({parameter, std::string(slot)});
  PIPEWRIGHT_ASSERT(found != arrays_.end(), "an array is read that the checkpoint does not hold");
  const std::int64_t end = first + static_cast<std::int64_t>(into.size());
  for (const auto& [part, piece] : found->second) {
    const std::int64_t from = std::max(first, piece.first);
    const std::int64_t to = std::min(end, piece.first + piece.count);
    if (from >= to) continue;
    const std::string file = file_of(parts_[part]);
    std::ifstream stream(file, std::ios::binary);
    stream.seekg(piece.offset_bytes + (from - piece.first) * 4);
    stream.read(reinterpret_cast<char*>(into.data() + (from - first)), (to - from) * 4);
    if (!stream) throw MachineError("cannot read " + file + " any more");
  }
}

}  // namespace pipewright::exec
