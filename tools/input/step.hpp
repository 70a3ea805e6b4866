// One step with its times, wherever it comes from: read from traces, or simulated. What analyze and
// report look at.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/timeline/timeline.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/trace_files.hpp"
#include "traces/analysis/bubbles.hpp"
#include "traces/analysis/critical_path.hpp"

namespace pipewright::tools {

struct Step {
  std::string title;
  std::vector<std::string> facts;  // where it comes from and what was assumed, a line each
  Program program;
  Timeline timeline;
  CostTable costs;  // empty of a trace
  Figures figures;
  std::vector<int> ranks;          // numbers of the rows
  std::optional<ChosenStep> read;  // of a trace
  std::optional<Order> order;      // of a subject; of a trace where it is asked for
};

/// Throws InputError as program_of_trace().
Step traced_step(ChosenStep chosen);

/// Throws InputError, naming its source, for a subject that is not whole or gets stuck.
Step simulated_step(Subject subject);
/// The first of a subject's problems as an InputError that names its source; nothing without one.
void refuse_unwhole(const Subject& subject);

traces::Times times_of(const Step& step);

/// By cause; of a trace with what it shows in the gaps that its messages do not explain.
traces::BubbleReport bubbles_of(const Step& step);

/// The rank that computes longest, and by how much more than the mean.
struct Straggler {
  std::size_t row = 0;
  double above_mean = 0;
};
Straggler straggler_of(const Figures& figures);
/// "rank 2 computes longest: …"; "" where it is no more than a hundredth.
std::string straggler_text(const Step& step);

}  // namespace pipewright::tools
