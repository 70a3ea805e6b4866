// The sentences of a WaitReport. Part of wait_for, which has describe() for everybody else.
#pragma once

#include <string>

#include "core/program/program.hpp"

namespace pipewright {

/// "rank 3".
std::string rank_text(RankId rank);
/// Of a head that waits for nothing that is there: why it never comes.
std::string what_never_comes(const Program& program, InstructionId head);

}  // namespace pipewright
