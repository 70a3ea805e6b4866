#include "traces/analysis/root_causes.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "traces/analysis/action_excess.hpp"
#include "traces/analysis/backward_path.hpp"
#include "traces/analysis/message_parts.hpp"

namespace pipewright::traces {
namespace {

/// A moment of a gap and what it comes from, before it is divided among the gap's bubbles.
struct Piece {
  std::int64_t start_ns = 0, end_ns = 0;
  RootCause cause = RootCause::Unexplained;
  InstructionId root = kNoInstruction, last_member = kNoInstruction;
};

/// What the trace of a rank shows inside its waits, the latest end first.
struct Shown {
  std::vector<std::pair<TimeRange, RootCause>> ranges;
  std::int64_t longest_ns = 0;

  explicit Shown(const TraceRank& rank) {
    for (const TimeRange& range : rank.posts) ranges.emplace_back(range, RootCause::Host);
    for (const TimeRange& range : rank.waits) ranges.emplace_back(range, RootCause::Upstream);
    std::stable_sort(ranges.begin(), ranges.end(),
                     [](const auto& a, const auto& b) { return a.first.end_ns > b.first.end_ns; });
    for (const auto& [range, cause] : ranges)
      longest_ns = std::max(longest_ns, range.end_ns - range.start_ns);
  }
};

class Finder {
 public:
  Finder(const Program& program, const Timeline& timeline, const CostTable& costs,
         const TraceTimeline* trace)
      : program_(program),
        timeline_(timeline),
        trace_(trace),
        path_(program, timeline, trace != nullptr ? Times::Measured : Times::Simulated),
        excess_(program, timeline),
        messages_(program, timeline, costs) {
    if (trace == nullptr) return;
    for (const TraceRank& rank : trace->ranks) shown_.emplace_back(rank);
  }

  RootReport run(const BubbleReport& bubbles) {
    report_.ranks.resize(bubbles.ranks.size());
    const auto& all = bubbles.bubbles;
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin + 1;
      while (end < all.size() && all[end].rank == all[begin].rank &&
             all[end].waiting == all[begin].waiting)
        ++end;
      explain({all.data() + begin, end - begin});
      begin = end;
    }
    for (const RootTotals& rank : report_.ranks) {
      for (std::size_t c = 0; c < rank.ns.size(); ++c) report_.total.ns[c] += rank.ns[c];
    }
    return std::move(report_);
  }

 private:
  static std::optional<RootCause> of_whole(BubbleCause cause) {
    if (cause == BubbleCause::Fill) return RootCause::Fill;
    if (cause == BubbleCause::Drain) return RootCause::Drain;
    if (cause == BubbleCause::Stuck) return RootCause::Stuck;
    return std::nullopt;
  }

  /// The bubbles before one computation, or one bubble before or after them all.
  void explain(std::span<const Bubble> gap) {
    if (const auto whole = of_whole(gap.front().cause)) {
      const Bubble& it = gap.front();
      add(it, {it.start_ns, it.end_ns, *whole, kNoInstruction, kNoInstruction});
      return;
    }
    find_pieces(gap.front().waiting, gap.front().start_ns);
    auto piece = pieces_.rbegin();  // they were found from the end
    for (const Bubble& bubble : gap) {
      while (piece != pieces_.rend()) {
        Piece part = *piece;
        part.start_ns = std::max(part.start_ns, bubble.start_ns);
        part.end_ns = std::min(part.end_ns, bubble.end_ns);
        add(bubble, part);
        if (piece->end_ns > bubble.end_ns) break;
        ++piece;
      }
    }
  }

  void find_pieces(InstructionId waiting, std::int64_t from) {
    steps_.clear();
    pieces_.clear();
    path_.before_start(waiting, from, steps_);
    last_member_ = kNoInstruction;
    InstructionId consumer = waiting;
    bool by_message = false;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const PathStep& step = steps_[s];
      const PathKind before = s == 0 ? PathKind::Compute : steps_[s - 1].kind;
      switch (step.kind) {
        case PathKind::Compute:
          computation(step, by_message ? consumer : kNoInstruction);
          consumer = step.instruction;
          by_message = false;
          break;
        case PathKind::Message:
          message(step);
          // To the sender, and not to a receiver that was late to take it.
          by_message = s + 1 < steps_.size() && is_recv(program_.code[step.instruction].kind) &&
                       is_send(program_.code[steps_[s + 1].instruction].kind);
          break;
        case PathKind::Collective:
          // Who came last stands in the step that follows.
          if (last_member_ == kNoInstruction && s + 1 < steps_.size())
            last_member_ = steps_[s + 1].instruction;
          piece(step, step.start_ns, RootCause::Collective);
          by_message = false;
          break;
        case PathKind::Wait:
          wait(step, before);
          break;
      }
    }
  }

  /// Backwards: what is beyond the median, then beyond the consumer, then the rest.
  void computation(const PathStep& step, InstructionId consumer) {
    if (program_.code[step.instruction].kind == ActionKind::Opt)
      return piece(step, step.start_ns, RootCause::Optimizer);
    const std::int64_t slower = excess_.over_median(step.instruction);
    const std::int64_t longer =
        consumer == kNoInstruction
            ? 0
            : excess_over_consumer(program_, timeline_, step.instruction, consumer);
    piece(step, step.end_ns - slower, RootCause::Straggler);
    piece(step, step.end_ns - std::max(slower, longer), RootCause::Imbalance);
    piece(step, step.start_ns, RootCause::Upstream);
  }

  void message(const PathStep& step) {
    const MessageParts parts = messages_.of(step.instruction);
    piece(step, step.end_ns - parts.latency_ns, RootCause::Latency);
    piece(step, step.end_ns - parts.latency_ns - parts.bandwidth_ns, RootCause::Bandwidth);
    piece(step, step.start_ns, RootCause::Queue);
  }

  /// Nothing of the Program held it back. `before`: the kind of the step before it in the list.
  void wait(const PathStep& step, PathKind before) {
    if (before == PathKind::Message) return piece(step, step.start_ns, RootCause::Queue);
    if (trace_ == nullptr) return piece(step, step.start_ns, RootCause::Unexplained);
    const Shown& shown = shown_[static_cast<std::size_t>(program_.rank_of(step.instruction).value)];
    // Who ends so late began after this wait, however long it was.
    const auto first = std::partition_point(
        shown.ranges.begin(), shown.ranges.end(),
        [&](const auto& each) { return each.first.end_ns - shown.longest_ns >= step.end_ns; });
    for (auto at = first; at != shown.ranges.end() && at->first.end_ns > step.start_ns; ++at) {
      if (at->first.start_ns >= step.end_ns) continue;
      piece(step, at->first.end_ns, RootCause::Unexplained);
      piece(step, at->first.start_ns, at->second);
    }
    piece(step, step.start_ns, RootCause::Unexplained);
  }

  /// From where the last piece begins, or the step ends, back to `from`.
  void piece(const PathStep& step, std::int64_t from, RootCause cause) {
    const std::int64_t end =
        pieces_.empty() ? step.end_ns : std::min(step.end_ns, pieces_.back().start_ns);
    const std::int64_t start = std::max(from, step.start_ns);
    if (start < end) pieces_.push_back({start, end, cause, step.instruction, last_member_});
  }

  void add(const Bubble& bubble, const Piece& part) {
    if (part.start_ns >= part.end_ns) return;
    report_.spans.push_back({bubble.rank, part.start_ns, part.end_ns, part.cause, bubble.cause,
                             bubble.waiting, part.root, part.last_member});
    report_.ranks[static_cast<std::size_t>(bubble.rank.value)]
        .ns[static_cast<std::size_t>(part.cause)] += part.end_ns - part.start_ns;
  }

  const Program& program_;
  const Timeline& timeline_;
  const TraceTimeline* trace_;
  std::vector<Shown> shown_;  // by rank, of a trace
  BackwardPath path_;
  const ActionExcess excess_;
  const MessageTimes messages_;
  RootReport report_;
  std::vector<PathStep> steps_;  // of the gap at hand
  std::vector<Piece> pieces_;    // the same, from its end
  InstructionId last_member_ = kNoInstruction;
};

}  // namespace

std::string_view to_string(RootCause cause) {
  constexpr std::array<std::string_view, kRootCauses> kNames = {"fill",
                                                                "drain",
                                                                "upstream action",
                                                                "straggler",
                                                                "imbalance",
                                                                "message latency",
                                                                "message bandwidth",
                                                                "message queue",
                                                                "collective",
                                                                "optimizer",
                                                                "host",
                                                                "unexplained",
                                                                "stuck"};
  return kNames[static_cast<std::size_t>(cause)];
}

RootReport root_causes(const Program& program, const Timeline& timeline, const CostTable& costs,
                       const BubbleReport& bubbles, const TraceTimeline* trace) {
  return Finder(program, timeline, costs, trace).run(bubbles);
}

std::vector<RootOf> by_root(const Program& program, const RootReport& report) {
  std::map<InstructionId, RootOf> found;
  for (const RootSpan& span : report.spans) {
    if (span.root == kNoInstruction) continue;
    const Instruction& in = program.code[span.root];
    const bool other_end = is_recv(in.kind) && in.link != kNoInstruction;
    const InstructionId root = other_end ? in.link : span.root;
    RootOf& of = found[root];
    of.root = root;
    of.idle_ns += span.end_ns - span.start_ns;
    of.by_cause.ns[static_cast<std::size_t>(span.cause)] += span.end_ns - span.start_ns;
  }
  std::vector<RootOf> roots;
  for (const auto& [root, of] : found) roots.push_back(of);
  std::stable_sort(roots.begin(), roots.end(),
                   [](const RootOf& a, const RootOf& b) { return a.idle_ns > b.idle_ns; });
  return roots;
}

std::vector<LateMember> late_members(const Program& program, const RootReport& report) {
  std::map<int, std::int64_t> found;
  for (const RootSpan& span : report.spans) {
    if (span.last_member == kNoInstruction || span.cause == RootCause::Collective) continue;
    found[program.rank_of(span.last_member).value] += span.end_ns - span.start_ns;
  }
  std::vector<LateMember> late;
  for (const auto& [rank, ns] : found) late.push_back({RankId(rank), ns});
  std::stable_sort(late.begin(), late.end(),
                   [](const LateMember& a, const LateMember& b) { return a.idle_ns > b.idle_ns; });
  return late;
}

}  // namespace pipewright::traces
