// TrainingSpec as job and plan files write it.
#pragma once

#include "core/base/json.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

/// Fields that are left out keep their defaults; "data" is relative to the file's folder.
TrainingSpec read_training(const JsonCursor& value);
Json to_json(const TrainingSpec& training);
/// 0 to 2^64 - 1.
std::uint64_t read_seed(const JsonCursor& value);

}  // namespace pipewright
