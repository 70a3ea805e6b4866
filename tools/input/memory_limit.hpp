// Ranks that hold more than --mem limit=.. allows.
#pragma once

#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "core/timeline/timeline.hpp"

namespace pipewright::tools {

/// A sentence a rank that exceeds the limit; none if the limit is 0.
std::vector<std::string> over_memory(const std::vector<RankFigures>& ranks, Bytes limit);

}  // namespace pipewright::tools
