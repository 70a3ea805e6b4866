// The same traffic in SimGrid: a host for each rank, a link for each link of the cost table, the
// routes as they are; factors of bandwidth and latency 1, so that links give what they say.
#include "tests/bench/network_pattern.hpp"

#ifdef PIPEWRIGHT_HAS_SIMGRID

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>
#include <simgrid/s4u.hpp>

namespace pipewright::bench {
namespace {

namespace sg = simgrid::s4u;

// SimGrid's seconds are microseconds here: its clock's precision is absolute.
constexpr double kNsPerUnit = 1000;

class World {
 public:
  World(const Pattern& pattern, Latency latency) : pattern_(pattern), latency_(latency) {
    for (const char* setting :
         {"network/model:CM02", "network/bandwidth-factor:1", "network/latency-factor:1",
          "network/weight-S:0", "network/crosstraffic:0", "network/TCP-gamma:0",
          "surf/precision:1e-9", "maxmin/precision:1e-9"})
      sg::Engine::set_config(setting);
    make_platform();
    spans_.resize(pattern.transfers.size());
  }

  std::vector<Span> run(sg::Engine& engine) {
    for (std::size_t t = 0; t < pattern_.transfers.size(); ++t)
      sg::Actor::create("transfer " + std::to_string(t), hosts_[0], [this, t] { carry_out(t); });
    engine.run();
    return spans_;
  }

 private:
  void make_platform() {
    auto* zone = sg::create_full_zone("cluster");
    for (int rank = 0; rank < pattern_.ranks; ++rank)
      hosts_.push_back(zone->create_host("rank " + std::to_string(rank), 1e9));
    std::vector<sg::Link*> links;
    for (const Link& link : pattern_.costs.links) {
      links.push_back(zone->create_link("link " + std::to_string(links.size()),
                                        link.bytes_per_second * 1e-9 * kNsPerUnit));
    }
    for (const auto& [from, to] : edges()) {
      const RouteCosts& route = pattern_.costs.route(RankId(from), RankId(to), pattern_.ranks);
      std::vector<sg::LinkInRoute> way;
      for (const std::uint32_t link : route.links) way.emplace_back(links[link]);
      if (latency_ == Latency::OnTheWay) {
        // Not shared: the route's latency alone.
        auto* wire =
            zone->create_link("way " + std::to_string(from) + " " + std::to_string(to), 1e15);
        wire->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE);
        wire->set_latency(static_cast<double>(route.latency.value) / kNsPerUnit);
        way.emplace_back(wire);
      }
      zone->add_route(host(from)->get_netpoint(), host(to)->get_netpoint(), nullptr, nullptr, way,
                      false);
    }
    zone->seal();
  }

  sg::Host* host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

  std::set<std::pair<int, int>> edges() const {
    std::set<std::pair<int, int>> edges;
    for (const Transfer& transfer : pattern_.transfers) {
      const auto& ranks = transfer.ranks;
      for (std::size_t m = 0; m < ranks.size(); ++m) {
        if (transfer.kind == Transfer::Kind::Message && m > 0) break;
        edges.emplace(ranks[m], ranks[(m + 1) % ranks.size()]);
        if (transfer.kind != Transfer::Kind::AllToAll) continue;
        for (const int other : ranks)
          if (other != ranks[m]) edges.emplace(ranks[m], other);
      }
    }
    return edges;
  }

  static std::int64_t now_ns() { return std::llround(sg::Engine::get_clock() * kNsPerUnit); }

  void send(int from, int to, double bytes) const {
    if (latency_ == Latency::Before) {
      const RouteCosts& route = pattern_.costs.route(RankId(from), RankId(to), pattern_.ranks);
      sg::this_actor::sleep_for(static_cast<double>(route.latency.value) / kNsPerUnit);
    }
    sg::Comm::sendto(host(from), host(to), static_cast<uint64_t>(std::llround(bytes)));
  }

  void carry_out(std::size_t t) {
    const Transfer& transfer = pattern_.transfers[t];
    for (const int before : transfer.after) {
      gate(before)->acquire();
      gate(before)->release();
    }
    sg::this_actor::sleep_until(static_cast<double>(transfer.start_ns) / kNsPerUnit);
    spans_[t].start = now_ns();
    const double part =
        static_cast<double>(transfer.bytes) / static_cast<double>(transfer.ranks.size());
    switch (transfer.kind) {
      case Transfer::Kind::Message:
        send(transfer.ranks[0], transfer.ranks[1], static_cast<double>(transfer.bytes));
        break;
      case Transfer::Kind::AllReduce:
        go_round(transfer.ranks, part);
        break;
      case Transfer::Kind::AllToAll:
        exchange(transfer.ranks, part);
        break;
    }
    spans_[t].end = now_ns();
    gate(static_cast<int>(t))->release();
  }

  /// Each member sends a part on, and does so again when it has got one.
  void go_round(const std::vector<int>& ring, double part) const {
    const std::size_t n = ring.size(), rounds = 2 * (n - 1);
    std::vector<std::vector<sg::SemaphorePtr>> came(n);  // by member and round
    for (auto& of_member : came) {
      for (std::size_t round = 0; round < rounds; ++round)
        of_member.push_back(sg::Semaphore::create(0));
    }
    std::vector<sg::ActorPtr> members;
    for (std::size_t m = 0; m < n; ++m) {
      members.push_back(sg::Actor::create("member", hosts_[0], [&, m] {
        for (std::size_t round = 0; round < rounds; ++round) {
          send(ring[m], ring[(m + 1) % n], part);
          came[(m + 1) % n][round]->release();
          came[m][round]->acquire();
        }
      }));
    }
    for (const sg::ActorPtr& member : members) member->join();
  }

  /// All pairs at once.
  void exchange(const std::vector<int>& ranks, double part) const {
    std::vector<sg::ActorPtr> pairs;
    for (const int from : ranks) {
      for (const int to : ranks) {
        if (from == to) continue;
        pairs.push_back(sg::Actor::create("pair", hosts_[0], [=, this] { send(from, to, part); }));
      }
    }
    for (const sg::ActorPtr& pair : pairs) pair->join();
  }

  /// Opens when the transfer has ended.
  sg::SemaphorePtr gate(int transfer) {
    auto& gate = gates_[transfer];
    if (!gate) gate = sg::Semaphore::create(0);
    return gate;
  }

  const Pattern& pattern_;
  Latency latency_;
  std::vector<sg::Host*> hosts_;
  std::map<int, sg::SemaphorePtr> gates_;
  std::vector<Span> spans_;
};

[[noreturn]] void run_and_write(const Pattern& pattern, Latency latency, int out) {
  char name[] = "network_patterns", quiet[] = "--log=root.thres:error";
  char* words[] = {name, quiet, nullptr};
  int count = 2;
  sg::Engine engine(&count, words);
  const std::vector<Span> spans = World(pattern, latency).run(engine);
  const auto* bytes = reinterpret_cast<const char*>(spans.data());
  for (std::size_t done = 0; done < spans.size() * sizeof(Span);) {
    const ssize_t written = write(out, bytes + done, spans.size() * sizeof(Span) - done);
    if (written <= 0) std::_Exit(1);
    done += static_cast<std::size_t>(written);
  }
  std::_Exit(0);
}

}  // namespace

bool has_simgrid() { return true; }

std::vector<Span> simulated_by_simgrid(const Pattern& pattern, Latency latency) {
  // One engine a process is all that SimGrid allows.
  int ends[2];
  if (pipe(ends) != 0) std::exit(3);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) run_and_write(pattern, latency, ends[1]);
  close(ends[1]);
  std::vector<Span> spans(pattern.transfers.size());
  auto* bytes = reinterpret_cast<char*>(spans.data());
  std::size_t done = 0;
  for (ssize_t got = 1; got > 0 && done < spans.size() * sizeof(Span);) {
    got = read(ends[0], bytes + done, spans.size() * sizeof(Span) - done);
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0 || done < spans.size() * sizeof(Span)) {
    std::fprintf(stderr, "SimGrid ended with status %d on \"%s\"\n", status, pattern.name.c_str());
    std::exit(1);
  }
  return spans;
}

}  // namespace pipewright::bench

#else

namespace pipewright::bench {
bool has_simgrid() { return false; }
std::vector<Span> simulated_by_simgrid(const Pattern&, Latency) { return {}; }
}  // namespace pipewright::bench

#endif
