// Section 7, "a whole order is also invalid if ...": what is said before the Program is run.
#pragma once

#include <string>

#include "tests/reference/order.hpp"

namespace pipewright::reference {

/// The first thing wrong with the lists of a whole order (as after 1.1), as a sentence; empty if
/// nothing is.
[[nodiscard]] std::string complaint_about(const Order& lists, const Heading& heading = {});

}  // namespace pipewright::reference
