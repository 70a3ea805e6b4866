// architecture.json: reading and writing (docs/plan-format.md). Throws InputError with file and
// pointer.
#pragma once

#include "core/base/json.hpp"
#include "core/model/architecture.hpp"

namespace pipewright {

/// {"schema":"pipewright.architecture/1", "preset":"llama3-8b"}, in which "layers" and "sequence"
/// may replace the preset's and "lora" be added, or an object with every width.
Architecture read_architecture(const JsonCursor& document);
/// In full.
Json to_json(const Architecture& model);

}  // namespace pipewright
