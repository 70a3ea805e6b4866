// One self-contained HTML page about a step: facts, the verdict, an interactive timeline, tables.
// It asks for nothing from any network, and says so to the browser. Pure function; any thread may
// call it.
#pragma once

#include <string>
#include <vector>

#include "traces/page/page_data.hpp"

namespace pipewright::traces {

struct PageTable {
  std::string title;
  std::vector<std::string> header;  // the first column is text, the others are numbers
  std::vector<std::vector<std::string>> rows;
};

/// All text is plain; the page escapes it.
struct PageText {
  std::string title;
  std::string headline;            // what matters most; "" for none
  std::vector<std::string> facts;  // a line each
  std::string verdict;  // of a step that did not end; keeps its lines; "" for one that did
  std::vector<PageTable> tables;
};

/// Same input, same bytes.
std::string html_page(const PageText& text, const std::vector<PageData>& timelines);

}  // namespace pipewright::traces
