// Measured times of all-reduces, read from JSON or from what nccl-tests prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/costs/collective_model.hpp"

namespace pipewright {

/// One all-reduce; two members or more.
struct MeasuredCollective {
  CollectiveGroup group;
  std::int64_t bytes = 0;
  double ns = 0;  // more than 0
};

struct MeasuredCollectives {
  std::string source;  // as the file says it, or the file's name
  std::vector<MeasuredCollective> rows;
};

/// {"source": …, "columns": ["bytes", "time_us", …], "by_gpus": {"2": [[8, 8.65, …], …], …}}. A
/// group of more members than a node has devices fills nodes one after the other. Groups of one,
/// which only copy, are left out. Throws InputError with file and pointer.
MeasuredCollectives read_collective_rows(const JsonCursor& document, int devices_per_node);

/// Such a document, or the output of nccl-tests' all_reduce_perf: out-of-place times, of one run or
/// of several one after the other; sizes of 0 bytes are left out. Throws InputError with the file
/// and a pointer or a line.
MeasuredCollectives read_collective_text(std::string_view text, const std::string& file,
                                         int devices_per_node);

}  // namespace pipewright
