// tune --samples: which of the first rows is chosen, by steps drawn from a profile's spread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/plan/job.hpp"
#include "core/plan/profile.hpp"
#include "planner/search/drawn_choice.hpp"
#include "tools/cli/arguments.hpp"

namespace pipewright::tools {

Flag drawn_rows_flag();
/// Makes the row chosen the result's best; nullopt without --samples. Throws InputError where there
/// is no profile, or one without spreads.
std::optional<planner::DrawnChoice> choose_if_asked(const Arguments& arguments, const Job& job,
                                                    const std::optional<Profile>& profile,
                                                    int cores, planner::SearchResult& result);
/// Adds "drawn_rows" to the fields of a search, and makes the row chosen its "best".
void add_drawn_rows(const planner::DrawnChoice& choice, const planner::SearchResult& result,
                    Json& fields);
/// "drawn 200 times each: row 1 10.4 ms on average (90 % below 10.9 ms), row 2 …; row 2 is chosen".
std::string drawn_rows_text(const planner::DrawnChoice& choice);

}  // namespace pipewright::tools
