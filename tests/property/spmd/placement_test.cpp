// Automatic placement of random small graphs: as fast as the fastest of all placements, which are
// listed here one by one; and carried out on shards it computes what the whole graph computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "planner/tensor_placement/placement.hpp"
#include "tests/property/spmd/executed.hpp"
#include "tests/property/spmd/random_graph.hpp"

namespace pipewright::spmd::test {
namespace placement_test {

using namespace planner::tensor_placement;
using pipewright::test::Draw;

/// All pairs of time and bytes, but those that another one is at most in both.
std::vector<Totals> best_of(std::vector<Totals> all) {
  std::sort(all.begin(), all.end(), [](const Totals& one, const Totals& other) {
    return std::pair(one.ns, one.bytes) < std::pair(other.ns, other.bytes);
  });
  std::vector<Totals> best;
  for (const Totals& one : all) {
    if (best.empty() || one.bytes < best.back().bytes) best.push_back(one);
  }
  return best;
}

Layout without_sums(Layout layout) {
  layout.partial.clear();
  return layout;
}

/// What a graph may take, by time, from every combination of ways and every layout of each tensor.
class Listing {
 public:
  Listing(const OperatorGraph& graph, const PlacementProblem& problem)
      : graph_(graph), problem_(problem), producers_(producers_of(graph)) {}

  std::size_t combinations() const {
    std::size_t count = 1;
    for (const auto& ways : problem_.ways()) count *= ways.size();
    return count;
  }

  std::vector<Totals> best() const {
    std::vector<std::size_t> sizes;
    for (const auto& ways : problem_.ways()) sizes.push_back(ways.size());
    std::vector<Totals> all;
    for_each_combination(sizes, [&](const std::vector<std::size_t>& ways) {
      for (const Totals& one : best_with(ways)) all.push_back(one);
    });
    return best_of(std::move(all));
  }

 private:
  std::vector<Totals> best_with(const std::vector<std::size_t>& ways) const {
    Totals computing;
    for (std::size_t at = 0; at < ways.size(); ++at) {
      const OperatorNanoseconds& ns = problem_.ways()[at][ways[at]].ns;
      computing.ns += ns.forward + ns.backward + ns.own_collectives;
    }
    std::vector<Totals> so_far = {computing};
    for (std::size_t tensor = 0; tensor < graph_.tensors.size(); ++tensor) {
      std::vector<Totals> more;
      for (const Layout& home : problem_.homes(tensor)) {
        const Totals own = of_tensor(tensor, home, ways);
        for (const Totals& one : so_far) more.push_back({one.ns + own.ns, one.bytes + own.bytes});
      }
      so_far = best_of(std::move(more));
    }
    return so_far;
  }

  /// The cheapest way there, and back with the gradient.
  double there(std::size_t tensor, const Layout& from, const Layout& to) const {
    const LayoutMoves& moves = problem_.moves(tensor);
    return moves.ns(moves.number(from), moves.number(to));
  }

  Totals of_tensor(std::size_t tensor, const Layout& home,
                   const std::vector<std::size_t>& ways) const {
    const bool has_gradient = problem_.has_gradient(tensor);
    Totals totals{0, static_cast<double>(problem_.home_bytes(tensor, home))};
    std::map<std::vector<std::vector<int>>, Layout> gradients;  // by what is taken
    for (std::size_t at = 0; at < ways.size(); ++at) {
      const OperatorWay& way = problem_.ways()[at][ways[at]];
      const auto inputs = tensors_of(graph_.operators[at].inputs);
      for (std::size_t place = 0; place < inputs.size(); ++place) {
        if (inputs[place] != tensor) continue;
        const auto entry = gradients.try_emplace(way.inputs[place].dims, way.inputs[place]).first;
        for (int dim = 0; dim < 3; ++dim) {
          if ((way.partial_gradients[place] >> dim & 1U) != 0) {
            entry->second.partial[dim] = Reduction::Sum;
          }
        }
      }
      const auto outputs = tensors_of(graph_.operators[at].outputs);
      for (std::size_t place = 0; place < outputs.size(); ++place) {
        if (outputs[place] != tensor) continue;
        totals.ns += there(tensor, way.outputs[place], home);
        if (has_gradient) {
          totals.ns += there(tensor, without_sums(home), without_sums(way.outputs[place]));
        }
      }
    }
    for (const auto& [dims, gradient] : gradients) {
      const Layout taken{.dims = dims, .partial = {}};
      totals.ns += there(tensor, home, taken);
      if (has_gradient) totals.ns += there(tensor, gradient, without_sums(home));
      if (taken != home) {
        totals.bytes +=
            static_cast<double>(problem_.moves(tensor).bytes(problem_.moves(tensor).number(taken)));
      }
    }
    return totals;
  }

  const OperatorGraph& graph_;
  const PlacementProblem& problem_;
  std::vector<std::optional<std::size_t>> producers_;
};

/// Random graphs on one mesh of so many dimensions whose annotations agree, in which a second of
/// them is trained.
template <class Act>
void for_each_graph(int dims, std::uint32_t seeds, Act act) {
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    RandomGraph random = random_graph(draw);
    if (random.graph.meshes.size() != 1 || random.graph.meshes[0].mesh.dims() != dims) continue;
    const auto producers = producers_of(random.graph);
    for (std::size_t at = 0; at < producers.size(); ++at) {
      if (producers[at]) continue;
      random.graph.tensors[at].role = draw.one_of(TensorRole::Activation, TensorRole::Parameter,
                                                  TensorRole::Parameter, TensorRole::Constant);
      // Larger, so that bytes count beside the start of a message.
    }
    try {
      act(random, draw);
    } catch (const InputError&) {  // annotations that contradict each other
    }
    if (::testing::Test::HasFailure()) return;
  }
}

Cluster cluster_of(Draw& draw) {
  Cluster cluster = cluster_preset("local-cpu", 8);
  // From messages that cost by their start to messages that cost by their bytes.
  cluster.inside.latency = Nanoseconds(draw.one_of(0, 10, 2000));
  cluster.inside.bytes_per_second = draw.one_of(1e7, 1e9, 1e10);
  cluster.device.flops = draw.one_of(1e7, 1e9, 1e11);
  return cluster;
}

void expect_least(int dims, std::size_t most_combinations, int at_least) {
  int compared = 0, limited = 0;
  for_each_graph(dims, 4000, [&](const RandomGraph& random, Draw& draw) {
    if (compared >= at_least || random.graph.operators.size() > 4) return;
    const Cluster cluster = cluster_of(draw);
    const MeshPrices prices(cluster, random.graph.meshes.front().mesh);
    const PlacementProblem problem(random.graph, prices);
    const Listing listing(random.graph, problem);
    if (listing.combinations() > most_combinations) return;
    const std::vector<Totals> best = listing.best();
    ++compared;
    const FoundPlacement free = found_placement(problem, 1e15);
    ASSERT_TRUE(free.assignment);
    EXPECT_NEAR(free.totals.ns, best.front().ns, 1e-6 * best.front().ns);
    EXPECT_TRUE(is_reached(free.totals.ns, free.bound_ns));
    for (std::size_t at = 1; at < best.size(); ++at) {
      ++limited;
      const FoundPlacement found = found_placement(problem, best[at].bytes);
      ASSERT_TRUE(found.assignment);
      EXPECT_NEAR(found.totals.ns, best[at].ns, 1e-6 * best[at].ns);
      EXPECT_LE(found.totals.bytes, best[at].bytes);
      EXPECT_TRUE(is_reached(found.totals.ns, found.bound_ns));
    }
    const FoundPlacement none = found_placement(problem, best.back().bytes - 1);
    EXPECT_FALSE(none.assignment);
    EXPECT_NEAR(none.least_bytes, best.back().bytes, 1e-6);
  });
  EXPECT_EQ(compared, at_least);
  EXPECT_GT(limited, at_least);
}

TEST(TensorPlacement, IsTheFastestOfAllOnOneDimension) { expect_least(1, 20'000, 200); }

TEST(TensorPlacement, IsTheFastestOfAllOnTwoDimensions) { expect_least(2, 4'000, 200); }

/// Values of annotated tensors and operators stay, and shards compute what the whole graph does.
TEST(TensorPlacement, ComputesWhatTheWholeGraphComputes) {
  int carried_out = 0;
  for (const int dims : {1, 2}) {
    for_each_graph(dims, 600, [&](const RandomGraph& random, Draw& draw) {
      const GraphPlacement placement = placed(random.graph, cluster_of(draw), 1'000'000'000);
      ASSERT_TRUE(placement.is_found());
      ++carried_out;
      expect_computes_whole(random, placement.completion);
      for (std::size_t at = 0; at < random.graph.tensors.size(); ++at) {
        const auto& given = random.graph.tensors[at].annotation.layout;
        EXPECT_TRUE(!given || given == placement.completion.graph.tensors[at].annotation.layout);
      }
    });
  }
  EXPECT_GT(carried_out, 200);
}

}  // namespace placement_test
}  // namespace pipewright::spmd::test
