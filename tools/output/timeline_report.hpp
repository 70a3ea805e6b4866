// What the page of --html says about a step.
#pragma once

#include "core/timeline/timeline.hpp"
#include "tools/input/subject.hpp"
#include "traces/pictures/report.hpp"

namespace pipewright::tools {

/// Of a step that ended or got stuck; the latter with check's sentences.
traces::Report report_of(const Subject& subject, const Timeline& timeline);

}  // namespace pipewright::tools
