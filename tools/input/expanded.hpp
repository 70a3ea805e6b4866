// --expand: ranks that stand for several devices become these devices (docs/semantics.md §3.5).
#pragma once

#include "tools/cli/arguments.hpp"
#include "tools/input/subject.hpp"

namespace pipewright::tools {

Flag expand_flag();
/// Where the flag is given and the subject's ranks stand for devices, its order, Program and costs
/// become those of every device. Returns how many devices a rank had; 1: nothing was done.
int expand_if_asked(const Arguments& arguments, Subject& subject);

}  // namespace pipewright::tools
