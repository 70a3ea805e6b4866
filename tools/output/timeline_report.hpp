// The page of --html about a step.
#pragma once

#include <string>

#include "core/timeline/timeline.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

/// Of a step that ended or got stuck; the latter with check's sentences.
std::string timeline_page(const Subject& subject, const Timeline& timeline);

}  // namespace pipewright::tools
