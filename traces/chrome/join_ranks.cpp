#include "traces/chrome/join_ranks.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "traces/analysis/slice_waits.hpp"
#include "traces/chrome/read_trace.hpp"

namespace pipewright::traces {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max() / 4;

/// A tensor on its way: an activation of a stage, or the gradient of its inputs.
struct TensorKey {
  bool gradient;
  int stage, micro_batch;
  auto operator<=>(const TensorKey&) const = default;
};

/// The first moment at which it may be under way, on the rank that makes it, or the last one by
/// which it has come, on the rank that needs it.
struct Moment {
  std::size_t rank = 0;
  std::int64_t at_ns = 0;
};

/// One end of every message of the job. A tensor without a message has no second end, or both on
/// one rank.
struct Messages {
  std::map<TensorKey, Moment> begun, ended;

  void take(std::size_t rank, const Action& a, const TraceSpan& span) {
    if (is_call(a.kind)) return;
    const bool forward =
        a.kind == ActionKind::F || a.kind == ActionKind::SendF || a.kind == ActionKind::RecvF;
    const int source = a.stage.value + (forward ? -1 : 1);
    if (is_send(a.kind)) {
      // Later than the end of the computation, so the tighter bound of the two.
      begun.insert_or_assign({!forward, a.stage.value, a.micro_batch.value},
                             Moment{rank, span.start_ns});
    } else if (is_recv(a.kind)) {
      ended.insert_or_assign({!forward, source, a.micro_batch.value}, Moment{rank, span.end_ns});
    } else if (a.kind == ActionKind::F || a.kind == ActionKind::B || a.kind == ActionKind::I) {
      begun.try_emplace({!forward, a.stage.value, a.micro_batch.value}, Moment{rank, span.end_ns});
      ended.try_emplace({!forward, source, a.micro_batch.value}, Moment{rank, span.end_ns});
    }
  }
};

Messages messages_of(const TraceTimeline& trace) {
  Messages messages;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const WaitRule rule = trace.ranks[r].wait_rule;
    const bool shows_arrival = rule == WaitRule::Receives || rule == WaitRule::Operators;
    for (const TraceSpan& span : trace.ranks[r].spans) {
      if (is_recv(span.cell.action.kind) && !shows_arrival) continue;
      messages.take(r, span.cell.action, span);
      if (span.cell.partner) messages.take(r, *span.cell.partner, span);
    }
  }
  return messages;
}

/// limit[a][b]: by how much more rank a's times may be shifted than rank b's.
using Limits = std::vector<std::vector<std::int64_t>>;

Limits limits_of(const Messages& messages, std::size_t ranks) {
  Limits limit(ranks, std::vector<std::int64_t>(ranks, kUnbounded));
  for (const auto& [tensor, begun] : messages.begun) {
    const auto ended = messages.ended.find(tensor);
    if (ended == messages.ended.end() || ended->second.rank == begun.rank) continue;
    std::int64_t& most = limit[begun.rank][ended->second.rank];
    most = std::min(most, ended->second.at_ns - begun.at_ns);
  }
  return limit;
}

/// The tightest limits that follow (Floyd and Warshall). False if they contradict each other.
bool close(Limits& limit) {
  const std::size_t n = limit.size();
  for (std::size_t r = 0; r < n; ++r) limit[r][r] = 0;
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t a = 0; a < n; ++a) {
      if (limit[a][k] == kUnbounded) continue;
      for (std::size_t b = 0; b < n; ++b) {
        if (limit[k][b] == kUnbounded) continue;
        limit[a][b] = std::min(limit[a][b], limit[a][k] + limit[k][b]);
      }
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    if (limit[r][r] < 0) return false;
  }
  return true;
}

std::vector<ClockShift> align(TraceTimeline& trace, bool& agreed) {
  Limits limit = limits_of(messages_of(trace), trace.ranks.size());
  agreed = std::all_of(limit.begin(), limit.end(), [](const auto& row) {
    return std::all_of(row.begin(), row.end(), [](std::int64_t most) { return most >= 0; });
  });
  if (!close(limit)) {
    throw InputError(
        trace.source, "",
        "and the files of the other ranks contradict each other: whatever their clocks "
        "are shifted by, some message ends before it began; give files of one step");
  }
  std::vector<ClockShift> clocks;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const std::int64_t most = limit[r][0], least = -limit[0][r];
    ClockShift clock{trace.ranks[r].rank, 0, least, most, most < kUnbounded && least > -kUnbounded};
    if (!agreed && clock.bounded) clock.shift_ns = least + (most - least) / 2;
    if (!agreed && !clock.bounded)
      clock.shift_ns =
          most < kUnbounded ? std::min<std::int64_t>(0, most) : std::max<std::int64_t>(0, least);
    shift(trace.ranks[r], clock.shift_ns);
    clocks.push_back(clock);
  }
  return clocks;
}

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
  std::int64_t first = kUnbounded;
  for (const TraceRank& rank : trace.ranks) first = std::min(first, begin_ns(rank));
  trace.makespan_ns = 0;
  for (TraceRank& rank : trace.ranks) {
    shift(rank, -first);
    for (const TraceSpan& span : rank.spans) {
      trace.makespan_ns = std::max(trace.makespan_ns, span.end_ns);
    }
  }
}

}  // namespace

JoinedTrace join_ranks(std::vector<TraceTimeline> files) {
  JoinedTrace joined;
  if (files.size() == 1) {
    joined.trace = std::move(files.front());
  } else {
    refuse_what_is_no_set(files);
    joined.trace.source = files.front().source;
    joined.trace.world_size = files.front().world_size;
    for (TraceTimeline& file : files) {
      for (TraceRank& rank : file.ranks) {
        shift(rank, file.clock_ns - files.front().clock_ns);
        joined.trace.ranks.push_back(std::move(rank));
      }
    }
    std::sort(joined.trace.ranks.begin(), joined.trace.ranks.end(),
              [](const TraceRank& a, const TraceRank& b) { return a.rank < b.rank; });
    joined.clocks = align(joined.trace, joined.agreed);
  }
  separate_waits_by_producers(joined.trace);
  if (!joined.clocks.empty()) finish(joined.trace);
  return joined;
}

}  // namespace pipewright::traces
