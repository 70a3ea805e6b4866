#include "core/spmd/reshard_steps.hpp"

#include <algorithm>
#include <map>

namespace pipewright::spmd {
namespace {

/// Elements that the busiest process sends or receives in a collective.
std::int64_t busiest(const Shape& shape, const ReshardStep& step, const Distribution& from) {
  std::int64_t most = 0;
  for (std::size_t place = 0; place < from.mesh.ranks.size(); ++place) {
    const LocalPart old = local_part({shape, from.layout}, from.mesh, place);
    const LocalPart now = local_part({shape, step.after.layout}, from.mesh, place);
    const std::int64_t before = elements_of(old), after = elements_of(now);
    switch (step.kind) {
      case ReshardStep::Kind::AllGather:
        most = std::max(most, after - before);
        break;
      case ReshardStep::Kind::AllReduce: {
        const auto members = static_cast<std::int64_t>(step.groups.front().size());
        most = std::max(most, 2 * (before - before / members));
        break;
      }
      case ReshardStep::Kind::ReduceScatter:
        most = std::max(most, before - after);
        break;
      case ReshardStep::Kind::AllToAll: {
        const auto kept = common_part(old, now);
        most = std::max(most, std::max(before, after) - (kept ? elements_of(*kept) : 0));
        break;
      }
      default:
        break;
    }
  }
  return most;
}

/// On meshes of more dimensions only divisions that the target has are made on the way.
constexpr int kMostSearchedDims = 3;

class StepsFrom {
 public:
  StepsFrom(const Shape& shape, const Distribution& from, const Layout& target,
            const ReshardPrices& prices)
      : shape_(shape), from_(from), target_(target), prices_(prices) {}

  std::vector<ReshardStep> all() && {
    for (int dim = 0; dim < from_.mesh.dims(); ++dim) {
      if (from_.layout.partial.count(dim) != 0) {
        reduce(dim);
      } else if (const int axis = axis_of(dim); axis == -1) {
        divide(dim);
      } else if (from_.layout.dims[static_cast<std::size_t>(axis)].back() == dim) {
        gather(dim, axis);
      }
    }
    return std::move(steps_);
  }

 private:
  int axis_of(int dim) const {
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      const std::vector<int>& dims = from_.layout.dims[axis];
      if (std::find(dims.begin(), dims.end(), dim) != dims.end()) return static_cast<int>(axis);
    }
    return -1;
  }

  bool is_wanted(int dim, std::size_t axis) const {
    if (target_.dims.empty()) return false;
    const std::vector<int>& dims = target_.dims[axis];
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  }

  void reduce(int dim) {
    Layout whole = from_.layout;
    whole.partial.erase(dim);
    add({.kind = ReshardStep::Kind::AllReduce, .mesh_dim = dim}, whole);
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      Layout divided = whole;
      divided.dims[axis].push_back(dim);
      add({.kind = ReshardStep::Kind::ReduceScatter,
           .mesh_dim = dim,
           .axis = static_cast<int>(axis)},
          divided);
    }
  }

  void divide(int dim) {
    if (const auto partial = target_.partial.find(dim); partial != target_.partial.end()) {
      Layout layout = from_.layout;
      layout.partial.insert(*partial);
      add({.kind = ReshardStep::Kind::MakePartial, .mesh_dim = dim}, layout);
    }
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      if (from_.mesh.dims() > kMostSearchedDims && !is_wanted(dim, axis)) continue;
      Layout layout = from_.layout;
      layout.dims[axis].push_back(dim);
      add({.kind = ReshardStep::Kind::Slice, .mesh_dim = dim, .axis = static_cast<int>(axis)},
          layout);
    }
  }

  void gather(int dim, int axis) {
    Layout whole = from_.layout;
    whole.dims[static_cast<std::size_t>(axis)].pop_back();
    add({.kind = ReshardStep::Kind::AllGather, .mesh_dim = dim, .axis = axis}, whole);
    for (std::size_t other = 0; other < shape_.size(); ++other) {
      if (static_cast<int>(other) == axis) continue;
      Layout layout = whole;
      layout.dims[other].push_back(dim);
      add({.kind = ReshardStep::Kind::AllToAll,
           .mesh_dim = dim,
           .axis = axis,
           .to_axis = static_cast<int>(other)},
          layout);
    }
  }

  void add(ReshardStep step, Layout after) {
    step.after = {from_.mesh, std::move(after)};
    step.groups = groups_along(from_.mesh, {step.mesh_dim});
    step.bytes = prices_.element_bytes * busiest(shape_, step, from_);
    steps_.push_back(std::move(step));
  }

  const Shape& shape_;
  const Distribution& from_;
  const Layout& target_;
  const ReshardPrices& prices_;
  std::vector<ReshardStep> steps_;
};

class JointSteps {
 public:
  JointSteps(const Shape& shape, const Distribution& from, const ReshardPrices& prices)
      : shape_(shape), from_(from), prices_(prices) {}

  std::vector<ReshardStep> all() && {
    std::vector<int> partial;
    for (const auto& [dim, reduction] : from_.layout.partial) partial.push_back(dim);
    for (unsigned chosen = 1; chosen < 1U << partial.size(); ++chosen) {
      std::vector<int> dims;
      for (std::size_t at = 0; at < partial.size(); ++at) {
        if ((chosen >> at & 1U) != 0) dims.push_back(partial[at]);
      }
      if (dims.size() > 1) reduce(dims);
    }
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      const std::vector<int>& dims = from_.layout.dims[axis];
      for (std::size_t first = 0; first + 1 < dims.size(); ++first) {
        gather({dims.begin() + static_cast<std::ptrdiff_t>(first), dims.end()}, axis);
      }
    }
    return std::move(steps_);
  }

 private:
  void reduce(const std::vector<int>& dims) {
    Layout whole = from_.layout;
    for (const int dim : dims) whole.partial.erase(dim);
    add({.kind = ReshardStep::Kind::AllReduce}, dims, whole);
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      add({.kind = ReshardStep::Kind::ReduceScatter, .axis = static_cast<int>(axis)}, dims,
          divided_further(whole, axis, dims));
    }
  }

  /// `dims` are the last that divide `axis`.
  void gather(const std::vector<int>& dims, std::size_t axis) {
    Layout whole = from_.layout;
    whole.dims[axis].resize(whole.dims[axis].size() - dims.size());
    add({.kind = ReshardStep::Kind::AllGather, .axis = static_cast<int>(axis)}, dims, whole);
    for (std::size_t other = 0; other < shape_.size(); ++other) {
      if (other == axis) continue;
      add({.kind = ReshardStep::Kind::AllToAll,
           .axis = static_cast<int>(axis),
           .to_axis = static_cast<int>(other)},
          dims, divided_further(whole, other, dims));
    }
  }

  static Layout divided_further(Layout layout, std::size_t axis, const std::vector<int>& dims) {
    layout.dims[axis].insert(layout.dims[axis].end(), dims.begin(), dims.end());
    return layout;
  }

  void add(ReshardStep step, const std::vector<int>& dims, Layout after) {
    step.mesh_dim = dims.front();
    step.more_dims.assign(dims.begin() + 1, dims.end());
    step.groups = groups_along(from_.mesh, dims);
    step.after = {from_.mesh, std::move(after)};
    step.bytes = prices_.element_bytes * busiest(shape_, step, from_);
    steps_.push_back(std::move(step));
  }

  const Shape& shape_;
  const Distribution& from_;
  const ReshardPrices& prices_;
  std::vector<ReshardStep> steps_;
};

/// Coordinates along the partial dimensions: only processes that agree in them have parts of one
/// contribution.
std::vector<int> contribution_of(const Distribution& from, std::size_t place) {
  std::vector<int> coordinates;
  for (const auto& [dim, reduction] : from.layout.partial) {
    coordinates.push_back(from.mesh.coordinates(place)[static_cast<std::size_t>(dim)]);
  }
  return coordinates;
}

/// `whole` without `hole`, which lies in it, as boxes.
std::vector<LocalPart> rest_of(LocalPart whole, const LocalPart& hole) {
  std::vector<LocalPart> rest;
  for (std::size_t axis = 0; axis < whole.shape.size(); ++axis) {
    const std::int64_t begin = whole.offset[axis], end = begin + whole.shape[axis];
    const std::int64_t hole_begin = hole.offset[axis], hole_end = hole_begin + hole.shape[axis];
    const auto add = [&](std::int64_t from, std::int64_t to) {
      if (from == to) return;
      rest.push_back(whole);
      rest.back().offset[axis] = from;
      rest.back().shape[axis] = to - from;
    };
    add(begin, hole_begin);
    add(hole_end, end);
    whole.offset[axis] = hole_begin;
    whole.shape[axis] = hole.shape[axis];
  }
  return rest;
}

}  // namespace

std::int64_t elements_of(const LocalPart& part) {
  std::int64_t elements = 1;
  for (const std::int64_t size : part.shape) elements *= size;
  return elements;
}

std::optional<LocalPart> common_part(const LocalPart& one, const LocalPart& other) {
  LocalPart common = one;
  for (std::size_t axis = 0; axis < one.shape.size(); ++axis) {
    const std::int64_t begin = std::max(one.offset[axis], other.offset[axis]);
    const std::int64_t end =
        std::min(one.offset[axis] + one.shape[axis], other.offset[axis] + other.shape[axis]);
    if (begin >= end) return std::nullopt;
    common.offset[axis] = begin;
    common.shape[axis] = end - begin;
  }
  return common;
}

std::vector<std::vector<int>> groups_along(const ProcessMesh& mesh, const std::vector<int>& dims) {
  std::vector<std::vector<int>> groups;
  for (std::size_t place = 0; place < mesh.ranks.size(); ++place) {
    const std::vector<int> at = mesh.coordinates(place);
    const auto stands_first = [&](int dim) { return at[static_cast<std::size_t>(dim)] == 0; };
    if (!std::all_of(dims.begin(), dims.end(), stands_first)) continue;
    std::vector<std::size_t> places = {place};
    for (const int dim : dims) {
      std::vector<std::size_t> more;
      for (const std::size_t one : places) {
        for (const std::size_t other : mesh.line(one, dim)) more.push_back(other);
      }
      places = std::move(more);
    }
    std::vector<int>& group = groups.emplace_back();
    for (const std::size_t one : places) group.push_back(mesh.ranks[one]);
  }
  return groups;
}

std::vector<ReshardStep> joint_steps_from(const Shape& shape, const Distribution& from,
                                          const ReshardPrices& prices) {
  return JointSteps(shape, from, prices).all();
}

std::vector<ReshardStep> steps_from(const Shape& shape, const Distribution& from,
                                    const Layout& target, const ReshardPrices& prices) {
  return StepsFrom(shape, from, target, prices).all();
}

ReshardStep exchange(const Shape& shape, const Distribution& from, const Distribution& to,
                     const ReshardPrices& prices) {
  ReshardStep step{.kind = ReshardStep::Kind::Exchange, .groups = {}, .transfers = {}, .after = to};
  std::map<int, std::int64_t> sent, received;
  for (std::size_t place = 0; place < to.mesh.ranks.size(); ++place) {
    const int rank = to.mesh.ranks[place];
    const LocalPart wanted = local_part({shape, to.layout}, to.mesh, place);
    if (elements_of(wanted) == 0) continue;
    std::vector<std::size_t> sources;  // of the same contribution, the process itself first
    for (std::size_t source = 0; source < from.mesh.ranks.size(); ++source) {
      if (contribution_of(from, source) != contribution_of(to, place)) continue;
      sources.insert(from.mesh.ranks[source] == rank ? sources.begin() : sources.end(), source);
    }
    const auto busier = [&](std::size_t one, std::size_t other) {
      return sent[from.mesh.ranks[one]] < sent[from.mesh.ranks[other]];
    };
    const bool has_own = !sources.empty() && from.mesh.ranks[sources.front()] == rank;
    std::stable_sort(sources.begin() + (has_own ? 1 : 0), sources.end(), busier);
    std::vector<LocalPart> missing = {wanted};
    for (const std::size_t source : sources) {
      const LocalPart held = local_part({shape, from.layout}, from.mesh, source);
      std::vector<LocalPart> still;
      for (const LocalPart& part : missing) {
        const auto common = common_part(part, held);
        if (!common) {
          still.push_back(part);
          continue;
        }
        for (LocalPart& rest : rest_of(part, *common)) still.push_back(std::move(rest));
        const int sender = from.mesh.ranks[source];
        if (sender == rank) continue;
        sent[sender] += elements_of(*common);
        received[rank] += elements_of(*common);
        step.transfers.push_back({.from = sender, .to = rank, .part = *common});
      }
      missing = std::move(still);
    }
  }
  for (const auto& [rank, elements] : sent) step.bytes = std::max(step.bytes, elements);
  for (const auto& [rank, elements] : received) step.bytes = std::max(step.bytes, elements);
  step.bytes *= prices.element_bytes;
  return step;
}

}  // namespace pipewright::spmd
