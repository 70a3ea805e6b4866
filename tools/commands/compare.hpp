// The two halves of `pipewright compare`.
#pragma once

#include <string>

#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"

namespace pipewright::tools {

/// Two trace files; the first is taken as the prediction. Returns the exit status.
int compare_traces(const std::string& first, const std::string& second, const Arguments& arguments,
                   Session& session);

}  // namespace pipewright::tools
