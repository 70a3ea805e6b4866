#pragma once

#include <cstddef>

namespace pipewright::planner {

/// An index that is never negative.
inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace pipewright::planner
