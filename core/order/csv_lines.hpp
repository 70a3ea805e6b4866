// The lines of a schedule CSV: what stands above the rows, and the rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/order/call.hpp"
#include "core/order/parts.hpp"
#include "core/order/sharding.hpp"

namespace pipewright {

/// A line that is a rank's row: it holds more than spaces and commas.
struct CsvRow {
  int number = 0;  // of the line, from 1
  std::string_view text;
};

struct CsvLines {
  bool fragment = false;           // "# fragment": only a part of an order
  std::vector<Group> groups;       // "# group ep: 0 2", by name
  std::vector<ActionParts> parts;  // "# parts 0F: attention*3 ALL_REDUCE(tp:a)"
  std::vector<MeshAxis> mesh;      // "# mesh tp=2 ep=4"
  std::vector<MeshAxis> devices;   // "# devices tp=2 ep=4"
  Sharding sharding;               // "# sharding zero=2 groups=2"
  std::vector<CsvRow> rows;        // in the order of the ranks; views into the text
};

/// Throws InputError with file and line for another line that begins with #.
CsvLines split_csv(std::string_view text, const std::string& file);
/// The lines above the rows; what `lines` has as rows is left out.
std::string csv_head(const CsvLines& lines);

}  // namespace pipewright
