// --chakra: a step as the execution traces that ASTRA-sim simulates.
#pragma once

#include "core/timeline/timeline.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

Flag chakra_flag();
/// Writes job.R.et of each rank R into the folder that --chakra names, and notes it. The timeline
/// has ended.
void save_chakra_files(const Arguments& arguments, Session& session, const Subject& subject,
                       const Timeline& timeline);

}  // namespace pipewright::tools
