// Reads tests/golden/vectors/*.json; the README there says what the fields mean.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/property/two_readings.hpp"

namespace pipewright::tests {

/// All vectors, file after file.
[[nodiscard]] std::vector<nlohmann::json> all_vectors();
/// What a vector gives: order, policy, costs.
[[nodiscard]] Case case_of(const nlohmann::json& vector);
/// Its name as GoogleTest likes it.
[[nodiscard]] std::string test_name(const nlohmann::json& vector);

}  // namespace pipewright::tests
