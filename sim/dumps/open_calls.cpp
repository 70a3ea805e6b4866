// Which calls of dumps are still to be explained.
#include <algorithm>
#include <map>
#include <tuple>

#include "sim/dumps/recorded_order.hpp"

namespace pipewright::sim {
namespace {

using Positions = std::vector<std::size_t>;

class EndedCalls {
 public:
  explicit EndedCalls(const DumpedJob& job) : job_(job) {
    for (const Dump& dump : job.dumps) ended_.emplace_back(dump.calls.size(), false);
  }

  OpenCalls open() {
    find_collectives();
    find_transfers();
    OpenCalls open(ended_.size());
    for (std::size_t r = 0; r < ended_.size(); ++r) {
      for (std::size_t at = 0; at < ended_[r].size(); ++at) {
        if (!ended_[r][at]) open[r].push_back(at);
      }
    }
    return open;
  }

 private:
  const RecordedCall& call(std::size_t rank, std::size_t at) const {
    return job_.dumps[rank].calls[at];
  }
  bool is_completed(std::size_t rank, std::size_t at) const {
    return call(rank, at).state == CallState::Completed;
  }

  void find_collectives() {
    // By group and number: the calls of each rank. A batch of them has one number.
    std::vector<std::map<std::int64_t, std::map<std::size_t, Positions>>> by_number(
        job_.groups.size());
    std::vector<std::map<std::size_t, std::int64_t>> last(job_.groups.size());  // by rank
    for (std::size_t r = 0; r < ended_.size(); ++r) {
      for (std::size_t at = 0; at < ended_[r].size(); ++at) {
        const RecordedCall& own = call(r, at);
        if (own.is_transfer) continue;
        by_number[own.group][own.number][r].push_back(at);
        last[own.group][r] = std::max(last[own.group][r], own.number);
      }
    }
    for (std::size_t g = 0; g < by_number.size(); ++g) {
      for (const auto& [number, calls] : by_number[g]) {
        if (!has_ended(g, number, calls, last[g])) continue;
        for (const auto& [rank, positions] : calls) mark(rank, positions);
      }
    }
  }

  bool has_ended(std::size_t group, std::int64_t number,
                 const std::map<std::size_t, Positions>& calls,
                 const std::map<std::size_t, std::int64_t>& last) const {
    const bool all_completed = std::ranges::all_of(calls, [&](const auto& own) {
      return std::ranges::all_of(own.second,
                                 [&](std::size_t at) { return is_completed(own.first, at); });
    });
    bool all_there = true;
    for (const RankId rank : job_.groups[group].ranks) {
      const auto r = static_cast<std::size_t>(rank.value);
      if (calls.contains(r)) continue;
      const auto own = last.find(r);
      if (own != last.end() && own->second > number) return true;
      all_there &= !job_.dumps[r].whole;  // it may be among what the rank has no longer
    }
    return all_completed && all_there;
  }

  void find_transfers() {
    // Group, whether in a batch, source, destination: the sends, and the receives.
    using Edge = std::tuple<std::size_t, bool, RankId, RankId>;
    std::map<Edge, std::pair<Positions, Positions>> edges;
    for (std::size_t r = 0; r < ended_.size(); ++r) {
      for (std::size_t at = 0; at < ended_[r].size(); ++at) {
        const RecordedCall& own = call(r, at);
        if (!own.is_transfer) continue;
        if (own.source == own.destination) {  // to itself: it waits for no other rank
          ended_[r][at] = true;
          continue;
        }
        const auto& ranks = job_.groups[own.group].ranks;
        auto& ends = edges[{own.group, own.batch != RecordedCall::kNoBatch,
                            ranks[static_cast<std::size_t>(own.source)],
                            ranks[static_cast<std::size_t>(own.destination)]}];
        (own.operation == "send" ? ends.first : ends.second).push_back(at);
      }
    }
    for (const auto& [edge, ends] : edges) {
      const auto from = static_cast<std::size_t>(std::get<2>(edge).value);
      const auto to = static_cast<std::size_t>(std::get<3>(edge).value);
      if (job_.dumps[from].whole && job_.dumps[to].whole) {
        end_pairs(from, ends.first, to, ends.second);
      } else {
        // How the two counts belong together is lost: what has not ended comes after what has.
        end_completed(from, ends.first);
        end_completed(to, ends.second);
      }
    }
  }

  void end_pairs(std::size_t from, const Positions& sends, std::size_t to, const Positions& recvs) {
    for (std::size_t k = 0; k < sends.size(); ++k) {
      if (!is_completed(from, sends[k])) continue;
      if (k >= recvs.size()) {
        ended_[from][sends[k]] = true;  // it has left
      } else if (is_completed(to, recvs[k])) {
        ended_[from][sends[k]] = ended_[to][recvs[k]] = true;
      }
    }
  }

  void end_completed(std::size_t rank, const Positions& positions) {
    for (const std::size_t at : positions) ended_[rank][at] = is_completed(rank, at);
  }

  void mark(std::size_t rank, const Positions& positions) {
    for (const std::size_t at : positions) ended_[rank][at] = true;
  }

  const DumpedJob& job_;
  std::vector<std::vector<bool>> ended_;  // by rank and position
};

}  // namespace

OpenCalls open_calls(const DumpedJob& job) { return EndedCalls(job).open(); }

}  // namespace pipewright::sim
