// checkpoint.json, as docs/plan-format.md describes it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "exec/checkpoint/checkpoint.hpp"

namespace pipewright::exec {

inline constexpr const char* kManifestName = "checkpoint.json";

struct CheckpointManifest {
  CheckpointFacts facts;
  std::vector<CheckpointPart> parts;
  std::string crc;  // of the file it was read from, eight digits; "": written before there was one
};

Json to_json(const CheckpointFacts& facts, std::span<const CheckpointPart> parts);
/// The text of the file. Its last member is the checksum of all its bytes.
std::string sealed_text(const CheckpointFacts& facts, std::span<const CheckpointPart> parts);
/// Whether the file's text has that checksum, which was read from it.
bool has_checksum(std::string text, std::string_view crc);
/// Throws InputError for unknown keys, another version, and pieces that do not lie in their file.
CheckpointManifest read_checkpoint_manifest(const JsonCursor& document);

}  // namespace pipewright::exec
