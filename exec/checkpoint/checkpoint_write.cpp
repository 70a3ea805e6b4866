// The writing half of exec/checkpoint/checkpoint.hpp.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <set>

#include "core/base/error.hpp"
#include "exec/checkpoint/checkpoint_json.hpp"

namespace pipewright::exec {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "a part holds the floats as they lie");

constexpr std::string_view kFolderPrefix = "step-";

/// The folders of single checkpoints, finished or not.
std::vector<fs::path> step_folders(const fs::path& all) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(all)) {
    if (entry.path().filename().string().starts_with(kFolderPrefix) && entry.is_directory())
      folders.push_back(entry.path());
  }
  return folders;
}

/// A part, finished or not, or a manifest that was not.
bool is_of_a_save(const fs::path& path) {
  return path.extension() == ".bin" || path.extension() == ".tmp";
}

}  // namespace

fs::path checkpoint_folder(const fs::path& all, int step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08d", step);
  return all / name;
}

CheckpointPartWriter::CheckpointPartWriter(const fs::path& folder, int rank, const DiskWatch& watch)
    : tag_("rank-" + std::to_string(rank)),
      file_((make_folder(folder, watch), folder), tag_, watch) {}

void CheckpointPartWriter::add(const StatePiece& piece) {
  part_.pieces.push_back({.parameter = piece.parameter,
                          .slot = piece.slot,
                          .first = piece.first,
                          .total = piece.total,
                          .count = static_cast<std::int64_t>(piece.values.size()),
                          .offset_bytes = file_.size()});
  file_.write(std::as_bytes(piece.values));
}

CheckpointPart CheckpointPartWriter::finish() {
  part_.bytes = file_.size();
  part_.crc = file_.crc();
  char name[64];
  std::snprintf(name, sizeof name, "%s.%08x.bin", tag_.c_str(), part_.crc);
  part_.file = name;
  file_.commit(part_.file);
  return std::move(part_);
}

CheckpointPart write_checkpoint_part(const fs::path& folder, int rank,
                                     std::span<const StatePiece> pieces, const DiskWatch& watch) {
  CheckpointPartWriter writer(folder, rank, watch);
  for (const StatePiece& piece : pieces) writer.add(piece);
  return writer.finish();
}

void write_manifest(const fs::path& folder, const CheckpointFacts& facts,
                    std::span<const CheckpointPart> parts, const DiskWatch& watch) {
  std::set<std::string> known = {kManifestName};
  for (const CheckpointPart& part : parts) {
    PIPEWRIGHT_ASSERT(known.insert(part.file).second, "two ranks wrote " + part.file);
  }
  const std::string text = sealed_text(facts, parts);
  DurableFile file(folder, kManifestName, watch);
  file.write(std::as_bytes(std::span(text)));
  file.commit(kManifestName);
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (is_of_a_save(path) && !known.contains(path.filename().string())) others.push_back(path);
  }
  for (const fs::path& path : others) remove_quietly(path, watch);
}

void remove_parts(const fs::path& folder, std::span<const CheckpointPart> parts,
                  const DiskWatch& watch) {
  std::error_code ignored;
  if (fs::exists(folder / kManifestName, ignored)) return;
  for (const CheckpointPart& part : parts) remove_quietly(folder / part.file, watch);
  fs::remove(folder, ignored);  // which does nothing while other ranks' parts lie there
}

void remove_unfinished_checkpoints(const fs::path& all, const DiskWatch& watch) {
  std::error_code ignored;
  for (const fs::path& folder : step_folders(all)) {
    const bool finished = fs::exists(folder / kManifestName);
    std::vector<fs::path> left;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const fs::path& path = entry.path();
      if (is_of_a_save(path) && (!finished || path.extension() == ".tmp")) left.push_back(path);
    }
    for (const fs::path& path : left) remove_quietly(path, watch);
    if (!finished) fs::remove(folder, ignored);  // unless somebody else has put something there
  }
}

void prune_checkpoints(const fs::path& all, int keep, const DiskWatch& watch) {
  PIPEWRIGHT_ASSERT(keep > 0, "no checkpoint would be left");
  std::vector<fs::path> folders = step_folders(all);
  std::sort(folders.begin(), folders.end(), std::greater<>());
  int finished = 0;
  for (const fs::path& folder : folders) {
    if (finished == keep) {
      // The manifest first: what is left of the rest is then no checkpoint.
      remove_quietly(folder / kManifestName, watch);
      remove_quietly(folder, watch);
    } else if (fs::exists(folder / kManifestName)) {
      ++finished;
    }
  }
}

}  // namespace pipewright::exec
