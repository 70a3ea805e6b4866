// The page of --html about a step.
#pragma once

#include <string>
#include <vector>

#include "core/timeline/timeline.hpp"
#include "tools/input/subject.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

/// Of a step that ended or got stuck; the latter with check's sentences. `first`: tables that stand
/// before its own.
std::string timeline_page(const Subject& subject, const Timeline& timeline,
                          std::vector<traces::PageTable> first = {});

}  // namespace pipewright::tools
