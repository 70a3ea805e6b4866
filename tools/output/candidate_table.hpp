// The ranked configurations of tune as text: a table where that fits, on narrow terminals with a
// second line for each row, on very narrow ones a paragraph for each. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "planner/search/search.hpp"
#include "tools/cli/terminal.hpp"
#include "traces/page/page.hpp"

namespace pipewright::tools {

struct CandidateRow {
  std::string place;  // "1", "base"
  const planner::Candidate* candidate = nullptr;
  Ink ink = Ink::Plain;
};

/// Degrees that are 1 in every candidate of `all` have no column. `baseline`: what a gain compares
/// with; 0: nothing. Nothing is cut: no line is longer than the terminal, but for single words.
std::string candidates_text(const std::vector<CandidateRow>& rows, const planner::SearchResult& all,
                            Nanoseconds baseline, const Terminal& terminal);

/// The same for a page, all columns of every row.
traces::PageTable candidates_page_table(const std::string& title,
                                        const std::vector<CandidateRow>& rows,
                                        const planner::SearchResult& all, Nanoseconds baseline);

}  // namespace pipewright::tools
