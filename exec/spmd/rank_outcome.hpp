// What one rank has in the end of a training, as a value that another process can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/spmd/graph/step_memory.hpp"
#include "exec/spmd/local_array.hpp"

namespace pipewright::exec::graphs {

/// When an action, or a part of one, ran, on the steady clock of process 0.
struct ActionSpan {
  std::int64_t begin_ns = 0;  // what it waits for is there
  std::int64_t end_ns = 0;
};

/// Of a step of a schedule.
struct RankSpans {
  std::vector<ActionSpan> actions = {};  // in their order, and the updates
  std::vector<ActionSpan> parts = {};    // of all actions (core/spmd/graph/stage_parts.hpp)
};

struct RankOutcome {
  std::vector<double> losses = {};  // none where it has no part of the loss
  std::vector<std::int64_t> step_ns = {};
  RankSpans spans = {};  // of the last step
  spmd::StepMemory memory = {};
  std::int64_t bytes_read = 0;  // of a saved state
  /// Of the parameters that are trained, by tensor: its parts.
  std::map<std::size_t, LocalArray> parameters = {}, first_gradients = {};
};

std::string to_bytes(const RankOutcome& outcome);
/// Throws RunError for what is not whole.
RankOutcome outcome_of(std::string_view bytes);

}  // namespace pipewright::exec::graphs
