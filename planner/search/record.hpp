// What was simulated of a configuration as a line of text: for the other processes of a search, and
// for a search that goes on later. Pure functions.
#pragma once

#include <string>

#include "planner/branches/evaluation.hpp"

namespace pipewright::planner {

/// Tells configurations of one job apart, under one memory limit.
std::string key_of(const Branch& branch, Bytes limit);

/// One line of JSON, numbers exact.
std::string record_of(const Evaluation& evaluation);
/// Throws InputError for a text that is not a record.
Evaluation evaluation_of(const std::string& record, const Branch& branch);

}  // namespace pipewright::planner
