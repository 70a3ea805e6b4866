// A profile for PipeDream's optimizer as JSON: an object with the running sums of compute seconds
// and parameter bytes over the states, the bytes that leave each state, and where a stage that ends
// in a state may begin. A file may hold several, each under its model's name. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "planner/graph_partition/pipedream.hpp"

namespace pipewright::planner {

/// Does the document look like such a file, right or wrong?
bool is_pipedream_profile(const JsonCursor& document);

/// The names of its models; empty where the document is one profile.
std::vector<std::string> pipedream_models(const JsonCursor& document);

/// Throws InputError for unknown keys, lists of different lengths, predecessors that are not lower
/// states, and a sum below that of a state before it (on other branches of a graph sums may fall).
PipeDreamProfile read_pipedream_profile(const JsonCursor& value);

}  // namespace pipewright::planner
