// Published measurements as calls of the command: files and flags by which `pipewright estimate`
// is asked for a row, so that nothing but what a user has makes its figure. Writes files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/measured/cases.hpp"

namespace pipewright::test {

/// The arguments of `pipewright` for a row, with model.json, cluster.json and framework.json in
/// `folder`. Nothing, with the reason in `why_not`, for what the command cannot be asked: several
/// kinds of nodes, blocks of each rank, setups among which the authors' is not told.
std::optional<std::vector<std::string>> command_of(const MeasuredCase& row,
                                                   const std::filesystem::path& folder,
                                                   std::string& why_not);

}  // namespace pipewright::test
