// The two halves of `pipewright compare`.
#pragma once

#include <string>

#include "core/costs.hpp"
#include "tools/arguments.hpp"
#include "tools/session.hpp"

namespace pipewright::tools {

/// Costs of stages when each of the table's equal stages is cut into `chunks` equal ones.
CostTable costs_of_chunks(const CostTable& whole, int chunks);

/// Two trace files; the first is taken as the prediction. Returns the exit status.
int compare_traces(const std::string& first, const std::string& second, const Arguments& arguments,
                   Session& session);

}  // namespace pipewright::tools
