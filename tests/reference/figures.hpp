// Section 6 of docs/semantics.md.
#pragma once

#include "tests/reference/interpreter.hpp"

namespace pipewright::reference {

/// Fills in the figures from the times. Of a Program that got stuck they count what has ended.
void write_figures(const Order& lists, Result& result);

}  // namespace pipewright::reference
