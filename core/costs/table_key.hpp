// What a cost table says, as a key.
#pragma once

#include "core/base/content_key.hpp"
#include "core/costs/costs.hpp"

namespace pipewright {

void add_to(ContentKey& key, const StageCosts& costs);
/// All but where its numbers come from. O(size of the table).
void add_to(ContentKey& key, const CostTable& table);

}  // namespace pipewright
