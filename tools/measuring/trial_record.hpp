// What came of trying a configuration, and its line in a journal. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "core/base/json.hpp"
#include "core/base/units.hpp"

namespace pipewright::tools {

enum class TrialOutcome { Ran, OutOfMemory, TimedOut, Failed };
/// "ran", "out of memory", "timed out", "failed".
std::string_view name_of(TrialOutcome outcome);

struct TrialRecord {
  TrialOutcome outcome = TrialOutcome::Ran;
  Nanoseconds step;  // of one that ran
  Bytes peak;        // 0: the command does not say
  Nanoseconds took;  // the command, from its start to its end
  std::string why;   // of one that failed: a line of its output
};

Json to_json(const TrialRecord& record);
/// One line of JSON. Throws InputError for a text that is not one.
std::string text_of(const TrialRecord& record);
TrialRecord read_trial_record(std::string_view text);

}  // namespace pipewright::tools
