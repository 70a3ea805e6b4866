// "cp_comm_type" of a plan or a profile: how ranks along cp get one another's keys and values.
#pragma once

#include "core/base/json_fields.hpp"

namespace pipewright {

/// Whether they go round a ring, of so many ranks; not where nothing is said.
inline bool read_ring(const JsonCursor& document, int context) {
  const auto type = document.find("cp_comm_type");
  if (!type || !read_choice<bool>(*type, {{"all_gather", false}, {"p2p", true}})) return false;
  if (context == 1) type->fail("cp above 1 beside it");
  return true;
}

}  // namespace pipewright
