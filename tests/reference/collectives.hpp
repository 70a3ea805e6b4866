// Section 5 of docs/semantics.md: what a collective takes where the costs say what a launch, a step
// and a byte take. In fractions, so that nothing is rounded before the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/policy.hpp"

namespace pipewright::reference {

__extension__ using Wide = __int128;  // nanoseconds times bytes

/// `kind`: "ALL_REDUCE" and so on. Nanoseconds, rounded up.
std::int64_t collective_price(const CollectiveTerms& terms, const std::string& kind,
                              const std::vector<int>& devices, std::int64_t bytes);

}  // namespace pipewright::reference
