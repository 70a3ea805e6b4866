// What tells Programs apart: ranks that run different ones must not meet.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace pipewright::exec {

/// Equal for equal Programs.
std::uint64_t checksum_of(const Program& program);

}  // namespace pipewright::exec
