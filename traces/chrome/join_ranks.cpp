#include "traces/chrome/join_ranks.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.hpp"
#include "traces/analysis/slice_waits.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/chrome/torch_stages.hpp"

namespace pipewright::traces {
namespace {

constexpr std::int64_t kMostApart = std::int64_t{1} << 58;  // nine years

using StepsOfFile = std::vector<TraceTimeline>;

/// `files` are those of one step.
void refuse_what_is_no_set(const std::vector<TraceTimeline>& files) {
  std::map<int, std::string> file_of_rank;
  std::map<std::string, int> rank_of_action;
  for (const TraceTimeline& file : files) {
    if (is_own(file)) {
      throw InputError(file.source, "", "is Pipewright's and has all ranks in it; give it alone");
    }
    for (const TraceRank& rank : file.ranks) {
      const auto [other, fresh] = file_of_rank.try_emplace(rank.rank, file.source);
      if (!fresh) {
        throw InputError(file.source, "",
                         "is of rank " + std::to_string(rank.rank) + ", as " + other->second +
                             " is; give one file of each rank");
      }
      for (const TraceSpan& span : rank.spans) {
        if (!is_compute(span.cell.action.kind)) continue;
        const auto [at, first] = rank_of_action.try_emplace(to_string(span.cell), rank.rank);
        if (first || at->second == rank.rank) continue;
        throw InputError(file.source, "rank " + std::to_string(rank.rank),
                         "computes " + at->first + ", as rank " + std::to_string(at->second) +
                             " does; give the files of one pipeline, not of its replicas");
      }
    }
  }
}

/// Time 0 is the start of the first action.
void finish(TraceTimeline& trace) {
  std::int64_t first = begin_ns(trace.ranks.front());
  for (const TraceRank& rank : trace.ranks) first = std::min(first, begin_ns(rank));
  trace.makespan_ns = 0;
  for (TraceRank& rank : trace.ranks) {
    shift(rank, -first);
    for (const TraceSpan& span : rank.spans) {
      trace.makespan_ns = std::max(trace.makespan_ns, span.end_ns);
    }
  }
}

std::string steps_text(const StepsOfFile& steps) {
  return std::to_string(steps.size()) + (steps.size() == 1 ? " step" : " steps");
}

/// Leaves the steps that all files show. Steps that only count from the start of each file have to
/// be equally many.
void keep_common_steps(std::vector<StepsOfFile>& files) {
  const StepsOfFile& first = files.front();
  const bool marked = std::all_of(files.begin(), files.end(), [](const StepsOfFile& steps) {
    return steps.front().steps_are_marked;
  });
  std::set<int> common;
  for (const TraceTimeline& step : first) common.insert(step.step);
  for (const StepsOfFile& steps : files) {
    if (!marked && steps.size() != first.size()) {
      throw InputError(steps.front().source, "",
                       "holds " + steps_text(steps) + ", but " + first.front().source + " " +
                           steps_text(first) + "; give files of the same steps");
    }
    std::set<int> here;
    for (const TraceTimeline& step : steps) here.insert(step.step);
    std::erase_if(common, [&](int step) { return !here.contains(step); });
  }
  if (common.empty()) {
    throw InputError(first.front().source, "",
                     "and the files of the other ranks have no step of the profiler in common; "
                     "give files of the same steps");
  }
  for (StepsOfFile& steps : files) {
    if (marked)
      std::erase_if(steps, [&](const TraceTimeline& step) { return !common.contains(step.step); });
  }
}

/// Step `k` of all files, by the clocks of their machines: time 0 is `zero_ns` on them.
TraceTimeline together(std::vector<StepsOfFile>& files, std::size_t k, std::int64_t zero_ns) {
  std::vector<TraceTimeline> of_step;
  for (StepsOfFile& steps : files) of_step.push_back(std::move(steps[k]));
  refuse_what_is_no_set(of_step);
  TraceTimeline whole = of_step.front();
  whole.ranks.clear();
  whole.stray_transfers = 0;
  for (TraceTimeline& file : of_step) {
    const std::int64_t apart = file.clock_ns - zero_ns;
    if (file.makespan_ns > kMostApart)
      throw InputError(file.source, "", "its actions take years; expected a trace of a few steps");
    if (apart > kMostApart || apart < -kMostApart) {
      throw InputError(
          file.source, "",
          "and " + whole.source + " are years apart by their clocks; give files of one step");
    }
    whole.stray_transfers += file.stray_transfers;
    for (TraceRank& rank : file.ranks) {
      shift(rank, apart);
      whole.ranks.push_back(std::move(rank));
    }
  }
  std::sort(whole.ranks.begin(), whole.ranks.end(),
            [](const TraceRank& a, const TraceRank& b) { return a.rank < b.rank; });
  number_torch_stages(whole);
  return whole;
}

std::vector<int> numbers_of(const TraceTimeline& trace) {
  std::vector<int> numbers;
  for (const TraceRank& rank : trace.ranks) numbers.push_back(rank.rank);
  return numbers;
}

void set_right(TraceTimeline& trace, const ClockFit& fit) {
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    retime(trace.ranks[r], [&](std::int64_t time) { return time + correction_at(fit, r, time); });
  }
}

}  // namespace

std::vector<JoinedTrace> join_steps(std::vector<std::vector<TraceTimeline>> files) {
  std::vector<JoinedTrace> joined;
  if (files.size() == 1 && is_own(files.front().front())) {
    for (TraceTimeline& step : files.front()) joined.push_back({std::move(step), {}});
    return joined;
  }
  keep_common_steps(files);
  const std::int64_t zero_ns = files.front().front().clock_ns;
  const std::size_t count = files.front().size();
  std::vector<Message> messages;
  for (std::size_t k = 0; k < count; ++k) {
    joined.push_back({together(files, k, zero_ns), {}});
    if (numbers_of(joined[k].trace) != numbers_of(joined[0].trace)) {
      throw InputError(joined[k].trace.source, "",
                       "does not show the same ranks in each step; give a trace in which it does");
    }
    add_messages(joined[k].trace, messages);
  }
  const TraceTimeline& first = joined.front().trace;
  const ClockFit fit = fit_clocks(messages, numbers_of(first), first.source);
  for (JoinedTrace& step : joined) {
    if (step.trace.ranks.size() > 1) step.clocks = fit;
    set_right(step.trace, fit);
    separate_waits_by_producers(step.trace);
    finish(step.trace);
  }
  return joined;
}

JoinedTrace join_ranks(std::vector<TraceTimeline> files) {
  std::vector<StepsOfFile> one_step;
  for (TraceTimeline& file : files) one_step.push_back({std::move(file)});
  return std::move(join_steps(std::move(one_step)).front());
}

}  // namespace pipewright::traces
