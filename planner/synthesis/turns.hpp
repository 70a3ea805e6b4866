// Synthesis where single actions have times of their own: which micro-batch comes when, besides the
// order of the actions. Micro-batches then differ, and short ones belong where a pipeline fills and
// drains, or long ones where memory lets them wait.
#pragma once

#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner::synthesis {

/// As synthesise(), for one kind of backward. Orders to begin with, named ones among them, are
/// tried as they are, and with micro-batches by length; then two of these change places, and the
/// phases of every synthesis look for a better order of actions for the best turns. Never worse
/// than the starts and the named schedules as they are.
SynthesisResult search_turns(const SynthesisRequest& request);

}  // namespace pipewright::planner::synthesis
