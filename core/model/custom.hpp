// The description of a layer that a user has written: its name, its settings and what it costs.
// Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

std::vector<std::string_view> custom_keys();
/// Reads "type", "out" (the input's width where it is left out), "settings" (texts by name),
/// "weights" (0), "operations" (of F for a row; twice the weights and once the output where it is
/// left out), "kept" and "held" (bytes of a row; 0). `layer.in` is there already. Throws
/// InputError.
void read_custom(const JsonCursor& value, Layer& layer);
void write_custom(const Layer& layer, Json& json);

}  // namespace pipewright
