// What was simulated of a configuration as a line of text: for the other processes of a search, and
// for a search that goes on later. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "planner/branches/evaluation.hpp"

namespace pipewright::planner {

/// Tells configurations of any jobs apart: the configuration in words, and evaluation_key().
std::string key_of(const Configuration& configuration, const std::string& evaluation_key);

/// One line of JSON, numbers exact. `limit`: that of the search.
std::string record_of(const Evaluation& evaluation, Bytes limit);
/// What evaluate() says under this limit. nullopt: the record, made under another one, does not
/// say. Throws InputError for a text that is not a record.
std::optional<Evaluation> evaluation_of(const std::string& record, const Branch& branch,
                                        Bytes limit);

}  // namespace pipewright::planner
