// One self-contained HTML page about a step: facts, the verdict, an interactive timeline, tables.
// It asks for nothing from any network, and says so to the browser. Pure function; any thread may
// call it.
#pragma once

#include <string>
#include <vector>

#include "traces/page/chart.hpp"
#include "traces/page/page_data.hpp"

namespace pipewright::traces {

struct PageTable {
  std::string title;
  std::vector<std::string> header;  // the first column is text, the others are numbers
  std::vector<std::vector<std::string>> rows;
  /// Of a page that offers several timelines: by row the number of the one that it stands for, -1
  /// for none. Rows beyond its end have none.
  std::vector<int> timelines = {};
};

/// Something that was checked, and whether it held.
struct PageCheck {
  std::string text;
  bool passed = false;
};

/// What a page says besides the step that it shows.
struct PageNotes {
  std::vector<PageCheck> checks;
  std::vector<PageChart> charts;
  std::vector<PageTable> tables;
};

/// All text is plain; the page escapes it.
struct PageText {
  std::string title;
  std::string headline;            // what matters most; "" for none
  std::vector<std::string> facts;  // a line each
  std::string verdict;   // of a step that did not end; keeps its lines; "" for one that did
  PageNotes notes = {};  // stand before the tables
  std::vector<PageTable> tables = {};
  /// The timelines are alternatives: the first is shown, and the tables' rows choose others.
  bool one_of_them = false;
};

/// Without a timeline it has no chart. Same input, same bytes.
std::string html_page(const PageText& text, const std::vector<PageData>& timelines);

}  // namespace pipewright::traces
