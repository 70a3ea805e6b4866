#include "core/program/wait_cycle.hpp"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <limits>

namespace pipewright {
namespace {

/// Edges run from what is waited for to who waits, so that a search from v gives each node's
/// distance to v along the waits.
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS>;

struct NotBelow {
  std::size_t least = 0;
  bool operator()(std::size_t vertex) const { return vertex >= least; }
};

constexpr std::size_t kFar = std::numeric_limits<std::size_t>::max();

/// Distance of each head to `target` along the waits, among heads that do not come before it.
std::vector<std::size_t> distances_to(const Graph& reversed, std::size_t target) {
  std::vector<std::size_t> distance(boost::num_vertices(reversed), kFar);
  distance[target] = 0;
  const boost::filtered_graph<Graph, boost::keep_all, NotBelow> rest(reversed, boost::keep_all{},
                                                                     NotBelow{target});
  boost::breadth_first_search(rest, target,
                              boost::visitor(boost::make_bfs_visitor(boost::record_distances(
                                  distance.data(), boost::on_tree_edge()))));
  return distance;
}

}  // namespace

std::vector<std::size_t> shortest_cycle(const HeadWaits& waits) {
  Graph reversed(waits.size());
  for (std::size_t from = 0; from < waits.size(); ++from) {
    for (const auto& wait : waits[from]) boost::add_edge(wait.behind, from, reversed);
  }
  std::vector<std::size_t> best;
  for (std::size_t start = 0; start < waits.size(); ++start) {
    const auto distance = distances_to(reversed, start);
    std::vector<std::size_t> cycle = {start};
    for (std::size_t at = start;;) {
      std::size_t next = kFar, left = kFar;
      for (const auto& wait : waits[at]) {
        const std::size_t d = wait.behind < start ? kFar : distance[wait.behind];
        if (d < left || (d == left && d != kFar && wait.behind < next)) {
          next = wait.behind;
          left = d;
        }
      }
      if (left == kFar) {
        cycle.clear();
        break;
      }
      if (next == start) break;
      cycle.push_back(next);
      at = next;
    }
    if (!cycle.empty() && (best.empty() || cycle.size() < best.size())) best = std::move(cycle);
    if (best.size() == 1) break;
  }
  return best;
}

}  // namespace pipewright
