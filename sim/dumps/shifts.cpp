#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "sim/dumps/operations.hpp"
#include "sim/dumps/standstill.hpp"

namespace pipewright::sim {
namespace {

/// The collectives of a group by rank and number; of a batch its first.
class GroupCalls {
 public:
  GroupCalls(const DumpedJob& job, std::size_t group) : job_(job), group_(group) {
    for (const Dump& dump : job.dumps) {
      auto& own = calls_[dump.rank];
      for (std::size_t at = 0; at < dump.calls.size(); ++at) {
        const RecordedCall& call = dump.calls[at];
        if (!call.is_transfer && call.group == group) own.try_emplace(call.number, at);
      }
      if (own.empty()) calls_.erase(dump.rank);
    }
  }

  /// The first number at which calls that are all there are not alike.
  std::vector<Shift> first_shifts() const {
    if (calls_.size() < 2) return {};
    std::int64_t first = 0, last = std::numeric_limits<std::int64_t>::max();
    for (const auto& [rank, own] : calls_) {
      first = std::max(first, own.begin()->first);
      last = std::min(last, own.rbegin()->first);
    }
    for (std::int64_t number = first; number <= last; ++number) {
      if (!all_have(number)) continue;
      const RankId usual = usual_rank(number);
      std::vector<Shift> shifts;
      bool alike = true;
      for (const auto& [rank, own] : calls_) {
        if (are_alike({rank, number}, {usual, number})) continue;
        alike = false;
        const RecordedCall &own_call = *find({rank, number}), &usual_call = *find({usual, number});
        const bool left_out = are_alike(&own_call, next_of({usual, number}));
        const bool too_many = are_alike(&usual_call, next_of({rank, number}));
        if (left_out != too_many)
          shifts.push_back({ref(rank, number), ref(usual, number), left_out});
      }
      if (!alike) return shifts;
    }
    return {};
  }

 private:
  struct Place {
    RankId rank;
    std::int64_t number = 0;
  };

  CallRef ref(RankId rank, std::int64_t number) const { return {rank, calls_.at(rank).at(number)}; }

  bool all_have(std::int64_t number) const {
    return std::ranges::all_of(calls_,
                               [&](const auto& own) { return own.second.contains(number); });
  }

  const RecordedCall* find(const Place& place) const {
    const auto& own = calls_.at(place.rank);
    const auto found = own.find(place.number);
    return found == own.end() ? nullptr : &call_at(job_, {place.rank, found->second});
  }

  /// What the rank calls after it. Where it has come no further, what it called after the last call
  /// that was alike, for programs repeat themselves.
  const RecordedCall* next_of(const Place& place) const {
    const auto& own = calls_.at(place.rank);
    const auto at = own.find(place.number);
    if (std::next(at) != own.end()) return find({place.rank, std::next(at)->first});
    for (auto earlier = at; earlier != own.begin();) {
      --earlier;
      if (are_alike({place.rank, earlier->first}, place))
        return find({place.rank, std::next(earlier)->first});
    }
    return nullptr;
  }

  bool are_alike(const RecordedCall* one, const RecordedCall* other) const {
    if (one == nullptr || other == nullptr || one->stack != other->stack) return false;
    if (one->operation == other->operation && one->inputs == other->inputs &&
        one->outputs == other->outputs)
      return true;
    const RecordedGroup& group = job_.groups[group_];
    return difference(call_of(*one, group), call_of(*other, group)).empty();
  }
  bool are_alike(const Place& a, const Place& b) const { return are_alike(find(a), find(b)); }

  /// Whose call most others have; the lowest of several.
  RankId usual_rank(std::int64_t number) const {
    RankId usual = calls_.begin()->first;
    std::ptrdiff_t most = 0;
    for (const auto& [rank, own] : calls_) {
      const auto alike = std::ranges::count_if(calls_, [&, one = rank](const auto& other) {
        return are_alike({one, number}, {other.first, number});
      });
      if (alike <= most) continue;
      most = alike;
      usual = rank;
      if (2 * alike > static_cast<std::ptrdiff_t>(calls_.size())) break;
    }
    return usual;
  }

  const DumpedJob& job_;
  const std::size_t group_;
  std::map<RankId, std::map<std::int64_t, std::size_t>> calls_;
};

}  // namespace

std::vector<Shift> shifts_of(const DumpedJob& job, const std::vector<Standstill>& standstills) {
  std::vector<Shift> shifts;
  std::set<std::size_t> seen;
  for (const Standstill& stands : standstills) {
    const RecordedCall& call = call_at(job, stands.calls.front());
    if (call.is_transfer || !seen.insert(call.group).second) continue;
    const std::vector<Shift> own = GroupCalls(job, call.group).first_shifts();
    shifts.insert(shifts.end(), own.begin(), own.end());
  }
  return shifts;
}

}  // namespace pipewright::sim
