// Trying a heuristic with every setting of its yes-or-no choices, without the runs that could only
// repeat an earlier one.
#pragma once

#include <cstddef>
#include <vector>

namespace pipewright::planner {

/// Calls attempt(way) for way = 0, 1, … below 2^choices; a set bit is a choice answered differently
/// from way 0. attempt returns the bits that it looked at and that could have changed the run. A
/// way is left out if it differs from an earlier one only in a bit that the earlier one did not
/// return: it would be the same run. So what a run returns must follow from its actions, and not
/// from the way's answers to bits that it does not return.
template <class Attempt>
void try_settings(int choices, Attempt&& attempt) {
  std::vector<unsigned> mattered;
  for (unsigned way = 0; way < 1U << choices; ++way) {
    bool repeats = false;
    for (unsigned bit = 1; bit < 1U << choices && !repeats; bit <<= 1) {
      if ((way & bit) == 0 || (mattered[way ^ bit] & bit) != 0) continue;
      mattered.push_back(mattered[way ^ bit]);
      repeats = true;
    }
    if (!repeats) mattered.push_back(attempt(way));
  }
}

}  // namespace pipewright::planner
