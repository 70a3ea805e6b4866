#include "traces/chrome/trace_threads.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

namespace pipewright::traces {
namespace {

class Dealer {
 public:
  Dealer(const Program& program, const Timeline& timeline)
      : program_(program),
        timeline_(timeline),
        lanes_(lane_table(program)),
        by_transfer_(program.policy.issue == Issue::Stream &&
                     program.policy.channel == Channel::Tag) {
    result_.ranks.resize(static_cast<std::size_t>(program.ranks()));
    result_.thread_of.assign(program.code.size(), TraceThreads::kNowhere);
    stuck_since_.assign(program.code.size(), kNotEnded);
    const std::vector<StuckSpan> stuck = stuck_spans(program, lanes_, timeline);
    for (const StuckSpan& head : stuck) stuck_since_[head.instruction] = head.start_ns;
    end_ = trace_end_ns(timeline, !stuck.empty());
  }

  TraceThreads run() {
    for (int r = 0; r < program_.ranks(); ++r) {
      const std::size_t rank = static_cast<std::size_t>(r);
      std::map<std::pair<std::int32_t, bool>, std::vector<Slice>> by_peer;  // used under tag
      for (std::uint32_t l = lanes_.rank_lane_begin[rank]; l < lanes_.rank_lane_begin[rank + 1];
           ++l) {
        const auto instructions = lanes_.instructions_of(l);
        const bool transfers =
            !instructions.empty() && is_transfer(program_.code[instructions.front()].kind);
        if (lanes_.number_of(l) == 0 || !by_transfer_ || !transfers) {
          deal(rank, lane_name(program_, lanes_, l), slices_of(instructions));
          continue;
        }
        const Instruction& in = program_.code[instructions.front()];
        const Route& route = program_.routes[in.route];
        const bool sends = is_send(in.kind);
        std::vector<Slice>& together =
            by_peer[{(sends ? route.destination : route.source).value, !sends}];
        for (const Slice& slice : slices_of(instructions)) together.push_back(slice);
      }
      for (auto& [key, slices] : by_peer) {
        const auto& [peer, receives] = key;
        deal(rank, (receives ? "from " : "to ") + std::to_string(peer), std::move(slices));
      }
    }
    return std::move(result_);
  }

 private:
  std::vector<Slice> slices_of(std::span<const InstructionId> instructions) const {
    std::vector<Slice> slices;
    slices.reserve(instructions.size());
    for (const InstructionId id : instructions) {
      if (timeline_.end[id] == kNotEnded) {
        const std::int64_t since = stuck_since_[id];
        if (since != kNotEnded) slices.push_back({id, since, since, end_, true});
        continue;
      }
      Slice slice{id, timeline_.start[id], timeline_.start[id], timeline_.end[id], false};
      if (program_.code[id].is_communication()) {
        slice.moving_ns = std::clamp(timeline_.moving[id], slice.start_ns, slice.end_ns);
        if (by_transfer_) slice.start_ns = slice.moving_ns;
      }
      slices.push_back(slice);
    }
    return slices;
  }

  /// Each slice goes to the first thread of the lane that is free by then.
  void deal(std::size_t rank, const std::string& name, std::vector<Slice> slices) {
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::tie(a.start_ns, a.end_ns) < std::tie(b.start_ns, b.end_ns);
    });
    std::vector<TraceThread>& threads = result_.ranks[rank];
    const std::size_t first = threads.size();
    threads.push_back({name, {}});
    for (const Slice& slice : slices) {
      std::size_t t = first;
      while (t < threads.size() && !threads[t].slices.empty() &&
             threads[t].slices.back().end_ns > slice.start_ns) {
        ++t;
      }
      if (t == threads.size()) threads.push_back({name + " #" + std::to_string(t - first + 1), {}});
      threads[t].slices.push_back(slice);
      result_.thread_of[slice.instruction] = static_cast<std::uint32_t>(t);
    }
  }

  const Program& program_;
  const Timeline& timeline_;
  const LaneTable lanes_;
  const bool by_transfer_;
  std::vector<std::int64_t> stuck_since_;
  std::int64_t end_ = 0;
  TraceThreads result_;
};

}  // namespace

TraceThreads trace_threads(const Program& program, const Timeline& timeline) {
  return Dealer(program, timeline).run();
}

}  // namespace pipewright::traces
