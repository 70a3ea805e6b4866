// Cuts a chain of layers into stages of consecutive layers, as even as the layers allow. Exact, not
// a heuristic: uneven layers (an embedding, a head) are weighed like all others. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pipewright::planner {

struct Partition {
  /// Stage s holds the layers [first_layer[s], first_layer[s + 1]); stages + 1 entries.
  std::vector<int> first_layer;
  std::int64_t largest = 0;  // cost of the most expensive stage

  int stages() const { return static_cast<int>(first_layer.size()) - 1; }
  bool operator==(const Partition&) const = default;
};

/// The partition into `stages` parts, none empty, whose largest stage costs least; of those the one
/// with the least sum of squared stage costs; of those the one whose early stages have fewest
/// layers (compared from stage 0 on). nullopt where there are fewer layers than stages.
/// Costs must not be negative. O(stages * layers * layers of the longest stage allowed).
std::optional<Partition> balanced_partition(std::span<const std::int64_t> layer_costs, int stages);

/// What each of the model's layers costs on each pipeline rank.
struct LayerCosts {
  std::vector<std::vector<std::int64_t>> of_kind;  // by kind of rank, then by layer
  std::vector<int> kind_of_rank;                   // empty: all ranks are of the first kind

  int kind(int rank) const {
    return kind_of_rank.empty() ? 0 : kind_of_rank[static_cast<std::size_t>(rank)];
  }
};

/// What stages cost besides their layers, by stage; empty: nothing.
struct BesidesLayers {
  std::vector<std::int64_t> fixed;  // added to its layers
  /// By the first layer after a cut, one entry more than layers: a stage costs no less than the
  /// entries at its two ends, such as messages that are sent while others are computed. Not part of
  /// the sum of squares.
  std::vector<std::vector<std::int64_t>> at_cut;
};

/// The same where a stage's cost depends on who computes it: stage s costs the sum of its layers in
/// layer_costs_of_kind[kind_of_stage[s]], and what it has besides its layers. Where all kinds are
/// the same, the same answer. The largest stage is made least, so that all stages go round at one
/// pace, and not the largest sum of a rank: a rank with several stages may hold more than another.
std::optional<Partition> balanced_partition(
    std::span<const std::vector<std::int64_t>> layer_costs_of_kind,
    std::span<const int> kind_of_stage, const BesidesLayers& besides = {});

/// Equal numbers of layers; where they do not divide, the first stages have one more.
std::optional<Partition> even_partition(std::span<const std::int64_t> layer_costs, int stages);

}  // namespace pipewright::planner
