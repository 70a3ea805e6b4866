// The page of --html about a step.
#pragma once

#include <string>
#include <vector>

#include "core/timeline/timeline.hpp"
#include "tools/input/subject.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

/// Of a step that ended or got stuck; the latter with check's sentences. `others`: timelines that
/// the notes' tables offer instead of its own, numbered from 1.
std::string timeline_page(const Subject& subject, const Timeline& timeline,
                          traces::PageNotes notes = {}, std::vector<traces::PageData> others = {});

}  // namespace pipewright::tools
