// Measured steps of other runtimes, written as traces of ours.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>

#include "core/base/error.hpp"
#include "core/program/lower.hpp"
#include "core/timeline/timeline.hpp"
#include "python/bindings.hpp"
#include "traces/chrome/trace.hpp"

namespace pipewright::python {
namespace {

/// Of one action, in ns of one clock: when the host began with it, when it was done (of a RECV:
/// when it was waited for), and how long it waited for its inputs.
using Span = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
using SpansByRank = std::vector<std::vector<Span>>;

std::int64_t first_begin(const SpansByRank& spans) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const auto& rank : spans) {
    for (const Span& span : rank) first = std::min(first, std::get<0>(span));
  }
  return first;
}

void require_spans(const Program& program, const SpansByRank& spans, const std::string& title) {
  const auto ranks = static_cast<std::size_t>(program.ranks());
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t actions = program.rank_begin[r + 1] - program.rank_begin[r];
    const std::size_t found = r < spans.size() ? spans[r].size() : 0;
    if (found == actions && spans.size() == ranks) continue;
    throw InputError(title + " has " + std::to_string(actions) + " actions on rank " +
                     std::to_string(r) + ", and times of " + std::to_string(found) +
                     " of them were given; give those of one whole step of every rank");
  }
}

/// A wait for an input stands at the start of a computation, so the rest of its span is work. Both
/// ends of a transfer end when the receiver has waited for it; the data moves from when both had
/// been issued.
Timeline timeline_of(const Program& program, const SpansByRank& spans) {
  const std::int64_t zero = first_begin(spans);
  Timeline timeline;
  for (const auto& rank : spans) {
    for (const auto& [begin, end, waited] : rank) {
      timeline.start.push_back(std::min(begin + waited, end) - zero);
      timeline.end.push_back(end - zero);
    }
  }
  timeline.moving = timeline.start;
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Instruction& in = program.code[id];
    if (!is_transfer(in.kind) || in.link == kNoInstruction) continue;
    if (is_send(in.kind)) timeline.end[id] = std::max(timeline.start[id], timeline.end[in.link]);
    timeline.moving[id] = std::clamp(timeline.start[in.link], timeline.start[id],
                                     std::max(timeline.start[id], timeline.end[id]));
  }
  timeline.makespan_ns = timeline.end.empty() ? 0 : *std::ranges::max_element(timeline.end);
  return timeline;
}

/// The time of the step.
std::int64_t write_measured(const std::filesystem::path& path, const GivenOrder& given,
                            const PolicyWord& policy, const SpansByRank& spans,
                            const std::map<std::string, std::string>& metadata) {
  const nb::gil_scoped_release release;
  const Program program = lower(given.order, policy_of(policy));
  require_spans(program, spans, given.title);
  const Timeline timeline = timeline_of(program, spans);
  const traces::TraceInfo info{.title = given.title,
                               .kind = traces::TraceInfo::Kind::Measured,
                               .metadata = {metadata.begin(), metadata.end()}};
  traces::write_chrome_trace(path, program, timeline, costs_of({}, program.stages).table, info);
  return timeline.makespan_ns;
}

}  // namespace

void bind_measured(nb::module_& module) {
  module.def("write_measured_trace", write_measured, nb::arg("path"), nb::arg("order"),
             nb::arg("policy"), nb::arg("spans"), nb::arg("metadata"),
             "Writes a trace of a step that another runtime ran. By rank, for each action of its "
             "list: begin, end and waiting, in ns of one clock.");
}

}  // namespace pipewright::python
