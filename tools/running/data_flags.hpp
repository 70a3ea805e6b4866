// --data, --labels and --targets: what a model trains on, for run and profile.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "exec/data/data.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/command.hpp"

namespace pipewright::tools {

/// `help`: of --data. Both texts have to stay.
std::vector<Flag> data_flags(std::string_view group, std::string_view help);
/// The files, all together; nullopt where none is given. Throws InputError for answers that do not
/// go with the data.
std::optional<exec::DataFiles> data_request(const Arguments& arguments);

}  // namespace pipewright::tools
