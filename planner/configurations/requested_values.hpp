// The values that a job's strategy gives a field. Pure functions.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/plan/job.hpp"

namespace pipewright::planner {

/// Empty where the field is open. Throws InputError with the field's name for a value that is not a
/// whole number of at least `least`.
std::vector<int> asked_numbers(const Choice& choice, const char* field, int least = 1);

/// Of a field of flags; empty where it is open.
std::vector<bool> asked_flags(const Choice& choice);

/// Whether the field is open or has the value.
inline bool admits(const std::vector<int>& asked, int value) {
  return asked.empty() || std::find(asked.begin(), asked.end(), value) != asked.end();
}

/// Divisors of a number of at least 1, ascending: what is tried where a field is open.
std::vector<int> divisors(int number);

}  // namespace pipewright::planner
