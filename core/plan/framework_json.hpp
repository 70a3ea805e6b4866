// A framework as jobs and commands name it: a known one, or a framework.json of the user's own,
// which says which known one it is like and what differs (docs/cost-model.md).
#pragma once

#include "core/base/json.hpp"
#include "core/plan/framework.hpp"

namespace pipewright {

/// A known framework's name, an object, or the path of a framework.json. Throws InputError.
FrameworkTraits read_framework(const JsonCursor& value);

/// What read_framework() reads again: its name, or an object with all that differs.
Json to_json(const FrameworkTraits& framework);

}  // namespace pipewright
