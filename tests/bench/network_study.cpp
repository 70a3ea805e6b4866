// Times of transfers over networks beside SimGrid's, in the same run
// (docs/evidence/benchmarks/network.md). Exit status 1 where the two are further apart than that
// page allows; 77 without SimGrid.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <queue>
#include <tuple>

#include "sim/flows.hpp"
#include "tests/bench/network_pattern.hpp"

namespace pipewright::bench {
namespace {

/// The transfers of a pattern on our links, as the engine drives them.
class OurFlows {
 public:
  explicit OurFlows(const Pattern& pattern)
      : pattern_(pattern), flows_(pattern.costs), spans_(pattern.transfers.size()) {}

  std::vector<Span> run() {
    std::vector<std::size_t> missing(pattern_.transfers.size());
    for (std::size_t t = 0; t < missing.size(); ++t) {
      missing[t] = pattern_.transfers[t].after.size();
      if (missing[t] == 0) events_.push({pattern_.transfers[t].start_ns, kBegins, t, 0});
    }
    while (!events_.empty()) {
      const std::int64_t now = events_.top().time;
      while (!events_.empty() && events_.top().time == now) {
        const Event event = events_.top();
        events_.pop();
        if (event.slot == kBegins) {
          begin(event.number, now);
        } else if (flows_.on_event({now, event.slot, event.stamp}, told_)) {
          const std::size_t over = transfer_of_[event.slot];
          spans_[over].end = now;
          for (std::size_t t = 0; t < missing.size(); ++t) {
            const Transfer& next = pattern_.transfers[t];
            if (std::ranges::count(next.after, static_cast<int>(over)) > 0 && --missing[t] == 0)
              events_.push({std::max(now, next.start_ns), kBegins, t, 0});
          }
        }
        take_told();
      }
      flows_.settle(now, told_);
      take_told();
    }
    return spans_;
  }

 private:
  static constexpr std::uint32_t kBegins = 0xffffffff;
  struct Event {
    std::int64_t time;
    std::uint32_t slot;
    std::size_t number;
    std::uint32_t stamp;
    bool operator<(const Event& o) const {
      return std::tie(time, slot, number, stamp) > std::tie(o.time, o.slot, o.number, o.stamp);
    }
  };

  void begin(std::size_t t, std::int64_t now) {
    const std::uint32_t slot = flows_.begin(phases_of(pattern_.transfers[t]), now, told_);
    if (transfer_of_.size() <= slot) transfer_of_.resize(slot + std::size_t{1});
    transfer_of_[slot] = t;
    spans_[t].start = now;
  }

  std::vector<sim::FlowPhase> phases_of(const Transfer& transfer) const {
    if (transfer.kind == Transfer::Kind::Message) {
      const RouteCosts& way = pattern_.costs.route(RankId(transfer.ranks[0]),
                                                   RankId(transfer.ranks[1]), pattern_.ranks);
      return {sim::message_phase(pattern_.costs, way, transfer.bytes, {})};
    }
    Collective collective{.kind = transfer.kind == Transfer::Kind::AllReduce ? ActionKind::AllReduce
                                                                             : ActionKind::AllToAll,
                          .stage = {},
                          .members = {},
                          .call_bytes = transfer.bytes};
    for (const int rank : transfer.ranks) collective.members.push_back({RankId(rank)});
    return sim::collective_phases(pattern_.costs, collective, pattern_.ranks,
                                  pattern_.costs.collective_time(collective, pattern_.ranks).value);
  }

  void take_told() {
    for (const auto& event : told_) events_.push({event.time, event.slot, 0, event.stamp});
    told_.clear();
  }

  const Pattern& pattern_;
  sim::Flows flows_;
  std::vector<Span> spans_;
  std::vector<std::size_t> transfer_of_;  // by slot
  std::priority_queue<Event> events_;
  std::vector<sim::Flows::Event> told_;
};

/// How far durations are apart: the mean over all transfers of |ours / theirs - 1|.
double difference(const std::vector<Span>& ours, const std::vector<Span>& theirs) {
  double sum = 0;
  for (std::size_t t = 0; t < ours.size(); ++t) {
    const auto own = static_cast<double>(ours[t].end - ours[t].start);
    const auto other = static_cast<double>(theirs[t].end - theirs[t].start);
    sum += std::abs(own / other - 1);
  }
  return sum / static_cast<double>(ours.size());
}

std::int64_t last_end(const std::vector<Span>& spans) {
  return std::ranges::max(spans, {}, &Span::end).end;
}

int study() {
  std::printf("%-52s %9s %12s %12s %7s %11s %11s\n", "pattern", "transfers", "ours us",
              "SimGrid us", "ratio", "difference", "equal ways");
  double sum = 0, sum_before = 0, most = 0, most_before = 0;
  const std::vector<Pattern> patterns = network_patterns();
  for (const Pattern& pattern : patterns) {
    const std::vector<Span> ours = pattern.ours.empty() ? OurFlows(pattern).run() : pattern.ours;
    const std::vector<Span> theirs = simulated_by_simgrid(pattern, Latency::OnTheWay);
    const std::vector<Span> before = simulated_by_simgrid(pattern, Latency::Before);
    const double apart = difference(ours, theirs), apart_before = difference(ours, before);
    std::printf("%-52s %9zu %12.1f %12.1f %7.4f %9.2f %% %9.2f %%\n", pattern.name.c_str(),
                ours.size(), static_cast<double>(last_end(ours)) * 1e-3,
                static_cast<double>(last_end(theirs)) * 1e-3,
                static_cast<double>(last_end(ours)) / static_cast<double>(last_end(theirs)),
                apart * 100, apart_before * 100);
    sum += apart;
    sum_before += apart_before;
    most = std::max(most, apart);
    most_before = std::max(most_before, apart_before);
  }
  const auto count = static_cast<double>(patterns.size());
  std::printf(
      "%zu patterns: mean difference %.2f %%, largest %.2f %%; with equal ways %.2f %%, %.2f %%\n",
      patterns.size(), sum / count * 100, most * 100, sum_before / count * 100, most_before * 100);
  return sum / count <= 0.05 && sum_before / count <= 0.05 ? 0 : 1;
}

}  // namespace
}  // namespace pipewright::bench

int main() {
  if (!pipewright::bench::has_simgrid()) {
    std::puts("skipped: SimGrid (libsimgrid-dev) is not installed");
    return 77;
  }
  return pipewright::bench::study();
}
