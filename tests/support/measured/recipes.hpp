// Rows of NVIDIA's recipes, of which several pages and frameworks have some: what they say alike.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tests/support/measured/rows.hpp"

namespace pipewright::test {

using Document = nlohmann::json;

/// A number of a row, or what stands for one that is missing or null.
int number_or(const Document& row, const char* name, int otherwise);
std::string text_of(const Document& row, const char* name);

/// Degrees, batch and recompute of a row; data parallel ranks are the devices that are left.
planner::ParallelSetup setup_of(const Document& row);

/// Of a row that does not tell its micro-batch: every power of two that a replica's samples allow.
std::vector<planner::ParallelSetup> with_sizes_of(const MeasuredCase& row, int samples);

/// Counts a row that the estimate cannot be asked for.
std::nullopt_t without(MeasuredTable& table, const char* reason);

/// The product format of a page's "precision": "FP8-CS" scales tensors as they are, "FP8-MX" and
/// "MXFP8" are one.
std::string_view products_of(const std::string& precision);
/// What a row's page says of it.
std::string precision_of(const Document& row);

/// One of NVIDIA's rows on Megatron core or PyTorch's own parallelism; nothing, with the reason
/// counted, for what the estimate does not know.
std::optional<MeasuredCase> recipe_case(MeasuredTable& table, const Document& row,
                                        const std::string& device, const char* seconds);

/// A row of Megatron-Bridge's page, with what the recipes beside it say.
std::optional<MeasuredCase> bridge_case(MeasuredTable& table, const Document& row);

}  // namespace pipewright::test
