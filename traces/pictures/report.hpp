// One self-contained HTML page about a step: facts, the verdict, the picture, tables. It needs no
// network and no script. Pure function; any thread may call it.
#pragma once

#include <string>
#include <vector>

namespace pipewright::traces {

struct ReportTable {
  std::string title;
  std::vector<std::string> header;  // the first column is text, the others are numbers
  std::vector<std::vector<std::string>> rows;
};

/// All text is plain; the page escapes it.
struct Report {
  std::string title;
  std::vector<std::string> facts;  // a line each
  std::string verdict;  // of a step that did not end; keeps its lines; "" for one that did
  std::string svg;      // svg_timeline()
  std::vector<ReportTable> tables;
};

/// Same input, same bytes.
std::string html_report(const Report& report);

}  // namespace pipewright::traces
