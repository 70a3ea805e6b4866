// One rank of DualPipe and of DualPipeV. Both are the same list: a rank holds a stage of a stream
// of micro-batches that begins near to it and one of a stream that comes back (DualPipeV) or comes
// from the other end (DualPipe), and overlaps a forward of the one with a backward of the other.
#pragma once

#include <vector>

#include "core/order/order.hpp"

namespace pipewright::planner {

/// A rank's stage of one stream, and the number of the stream's first micro-batch.
struct DualPipeStream {
  int stage = 0;
  int first_micro_batch = 0;
};

/// Appends the rank at `place` of `places` (0: where the near stream begins) with `micro_batches`
/// of each stream, at least 2 * places. The rule is deepseek-ai/DualPipe's (dualpipe.py,
/// dualpipev.py) in its eight steps.
void write_dualpipe_rank(int place, int places, int micro_batches, DualPipeStream near_stream,
                         DualPipeStream far_stream, std::vector<Cell>& cells);

}  // namespace pipewright::planner
