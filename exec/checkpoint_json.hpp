// checkpoint.json, as docs/plan-format.md describes it.
#pragma once

#include <span>

#include "exec/checkpoint.hpp"

namespace pipewright::exec {

inline constexpr const char* kManifestName = "checkpoint.json";

struct CheckpointManifest {
  CheckpointFacts facts;
  std::vector<CheckpointPart> parts;
};

Json to_json(const CheckpointFacts& facts, std::span<const CheckpointPart> parts);
/// Throws InputError for unknown keys, another version, and pieces that do not lie in their file.
CheckpointManifest read_checkpoint_manifest(const JsonCursor& document);

}  // namespace pipewright::exec
