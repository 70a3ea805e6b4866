#include "exec/spmd/moves.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/reshard_steps.hpp"

namespace pipewright::exec::graphs {
namespace {

using collectives::Group;
using spmd::Distribution;
using spmd::LocalPart;
using spmd::Reduction;
using Step = spmd::ReshardStep;
using Kind = spmd::ReshardStep::Kind;

std::optional<std::size_t> place_of(const spmd::ProcessMesh& mesh, int rank) {
  const auto found = std::find(mesh.ranks.begin(), mesh.ranks.end(), rank);
  if (found == mesh.ranks.end()) return std::nullopt;
  return static_cast<std::size_t>(found - mesh.ranks.begin());
}

std::vector<int> ranks_of_both(const Distribution& from, const Distribution& to) {
  std::set<int> ranks(from.mesh.ranks.begin(), from.mesh.ranks.end());
  ranks.insert(to.mesh.ranks.begin(), to.mesh.ranks.end());
  return {ranks.begin(), ranks.end()};
}

std::span<const std::byte> as_bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}
std::span<std::byte> as_bytes(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// One step of one process.
class Carrying {
 public:
  Carrying(const Step& step, const spmd::Shape& shape, const Distribution& before, int rank,
           GroupsByRanks& groups)
      : step_(step), shape_(shape), before_(before), rank_(rank), groups_(groups) {}

  std::optional<LocalArray> out(std::optional<LocalArray> array) {
    if (step_.kind == Kind::Exchange) return exchanged(array);
    if (!array) return array;
    switch (step_.kind) {
      case Kind::Slice:
        return sliced(*array);
      case Kind::MakePartial:
        return made_partial(std::move(*array));
      case Kind::AllGather:
        return gathered(*array);
      case Kind::AllReduce:
        reduce(*array);
        return array;
      case Kind::ReduceScatter:
        return scattered(*array);
      default:
        return turned(*array);
    }
  }

 private:
  LocalPart part_of(const Distribution& lying, int rank) const {
    return spmd::local_part({shape_, lying.layout}, lying.mesh, *place_of(lying.mesh, rank));
  }
  LocalArray next() const { return zeros_of(part_of(step_.after, rank_)); }

  const std::vector<int>& members() const {
    for (const std::vector<int>& group : step_.groups) {
      if (std::find(group.begin(), group.end(), rank_) != group.end()) return group;
    }
    throw_bug(__FILE__, __LINE__, "a process is in no group of a step");
  }
  Group& group(const std::vector<int>& ranks) const { return *groups_.at(ranks); }

  Reduction reduction() const {
    const auto& partial =
        step_.kind == Kind::MakePartial ? step_.after.layout.partial : before_.layout.partial;
    const auto found = partial.find(step_.mesh_dim);
    return found == partial.end() ? Reduction::Sum : found->second;
  }

  LocalArray sliced(const LocalArray& array) const {
    LocalArray made = next();
    copy_box(array, made.part, made);
    return made;
  }

  LocalArray made_partial(LocalArray array) const {
    if (reduction() != Reduction::Sum) return array;
    const std::vector<int> at = before_.mesh.coordinates(*place_of(before_.mesh, rank_));
    for (const int dim : dims_of(step_)) {
      if (at[sized(dim)] != 0) std::fill(array.values.begin(), array.values.end(), 0.0F);
    }
    return array;
  }

  LocalArray gathered(const LocalArray& array) const {
    const std::vector<int>& ranks = members();
    std::vector<LocalPart> parts;
    std::vector<std::size_t> sizes;
    std::size_t own = 0, all = 0;
    for (const int rank : ranks) {
      if (rank == rank_) own = all;
      parts.push_back(part_of(before_, rank));
      const std::size_t size = sized(spmd::elements_of(parts.back()));
      sizes.push_back(size * sizeof(float));
      all += size;
    }
    std::vector<float> values(all);
    std::copy(array.values.begin(), array.values.end(),
              values.begin() + static_cast<std::ptrdiff_t>(own));
    group(ranks).all_gather({as_bytes(values), sizes});
    LocalArray made = next();
    const float* at = values.data();
    for (const LocalPart& part : parts) {
      unpack_box(at, part, made);
      at += spmd::elements_of(part);
    }
    return made;
  }

  /// Sums and means; of maxima and minima there is no sum to be taken, so all are brought.
  void reduce(LocalArray& array) const {
    const std::vector<int>& ranks = members();
    const Reduction how = reduction();
    if (how == Reduction::Maximum || how == Reduction::Minimum) {
      choose(array, how == Reduction::Maximum);
      return;
    }
    require_sum(how);
    static_cast<void>(
        group(ranks).all_reduce(collectives::Summands(std::span(array.values), Numerics::Fast)));
    divide(array, how, ranks.size());
  }

  void require_sum(Reduction how) const {
    if (how == Reduction::Sum || how == Reduction::Average) return;
    throw InputError("partial values P(" + std::string(spmd::name_of(how)) +
                     ") are not brought together here; annotate the tensor before them whole");
  }

  static void divide(LocalArray& array, Reduction how, std::size_t members) {
    if (how != Reduction::Average) return;
    for (float& value : array.values) value /= static_cast<float>(members);
  }

  void choose(LocalArray& array, bool largest) const {
    const std::vector<int>& ranks = members();
    const std::size_t size = array.values.size();
    std::vector<float> all(size * ranks.size());
    const auto own = static_cast<std::size_t>(group(ranks).member());
    std::copy(array.values.begin(), array.values.end(),
              all.begin() + static_cast<std::ptrdiff_t>(own * size));
    group(ranks).all_gather(
        {as_bytes(all), std::vector<std::size_t>(ranks.size(), size * sizeof(float))});
    for (std::size_t at = 0; at < all.size(); ++at) {
      float& value = array.values[at % size];
      value = largest ? std::max(value, all[at]) : std::min(value, all[at]);
    }
  }

  /// Members' parts lie one behind the other, filled up to one length.
  LocalArray scattered(const LocalArray& array) const {
    const std::vector<int>& ranks = members();
    require_sum(reduction());
    std::size_t longest = 0;
    for (const int rank : ranks) {
      longest = std::max(longest, sized(spmd::elements_of(part_of(step_.after, rank))));
    }
    std::vector<float> packed(longest * ranks.size());
    for (std::size_t at = 0; at < ranks.size(); ++at) {
      pack_box(array, part_of(step_.after, ranks[at]), packed.data() + at * longest);
    }
    Group& own = group(ranks);
    static_cast<void>(own.reduce_scatter(collectives::Summands(std::span(packed), Numerics::Fast)));
    LocalArray made = next();
    unpack_box(packed.data() + static_cast<std::size_t>(own.member()) * longest, made.part, made);
    divide(made, reduction(), ranks.size());
    return made;
  }

  LocalArray turned(const LocalArray& array) const {
    LocalArray made = next();
    bring(members(), array, made, [&](int from, int to) {
      const auto common = spmd::common_part(part_of(before_, from), part_of(step_.after, to));
      return common ? std::vector<LocalPart>{*common} : std::vector<LocalPart>();
    });
    return made;
  }

  /// What a process has already of what it needs stays; the rest comes as the step says.
  std::optional<LocalArray> exchanged(const std::optional<LocalArray>& array) const {
    const bool is_before = place_of(before_.mesh, rank_).has_value();
    const bool is_after = place_of(step_.after.mesh, rank_).has_value();
    if (!is_before && !is_after) return std::nullopt;
    LocalArray made;
    if (is_after) made = next();
    if (is_before && is_after) {  // what belongs to another contribution is overwritten
      if (const auto kept = spmd::common_part(array->part, made.part)) {
        copy_box(*array, *kept, made);
      }
    }
    const auto parts = [&](int from, int to) {
      std::vector<LocalPart> found;
      for (const spmd::PartTransfer& one : step_.transfers) {
        if (one.from == from && one.to == to) found.push_back(one.part);
      }
      return found;
    };
    bring(ranks_of_both(before_, step_.after), array ? *array : LocalArray{}, made, parts);
    if (!is_after) return std::nullopt;
    return made;
  }

  /// `parts` says what one process sends another.
  template <class Parts>
  void bring(const std::vector<int>& ranks, const LocalArray& array, LocalArray& made,
             Parts parts) const {
    std::vector<std::size_t> out_sizes, in_sizes;
    std::vector<float> out, in;
    for (const int rank : ranks) {
      std::size_t sent = 0, received = 0;
      for (const LocalPart& part : parts(rank_, rank)) {
        const std::size_t size = sized(spmd::elements_of(part));
        out.resize(out.size() + size);
        pack_box(array, part, out.data() + out.size() - size);
        sent += size;
      }
      for (const LocalPart& part : parts(rank, rank_)) received += sized(spmd::elements_of(part));
      out_sizes.push_back(sent * sizeof(float));
      in_sizes.push_back(received * sizeof(float));
      in.resize(in.size() + received);
    }
    group(ranks).all_to_all({as_bytes(static_cast<const std::vector<float>&>(out)), out_sizes},
                            {as_bytes(in), in_sizes});
    const float* at = in.data();
    for (const int rank : ranks) {
      for (const LocalPart& part : parts(rank, rank_)) {
        unpack_box(at, part, made);
        at += spmd::elements_of(part);
      }
    }
  }

  const Step& step_;
  const spmd::Shape& shape_;
  const Distribution& before_;
  const int rank_;
  GroupsByRanks& groups_;
};

}  // namespace

void add_groups_of(const spmd::ReshardPlan& plan, const Distribution& from,
                   std::set<std::vector<int>>& groups) {
  Distribution before = from;
  for (const Step& step : plan.steps) {
    if (step.kind == Kind::Exchange) {
      groups.insert(ranks_of_both(before, step.after));
    } else {
      groups.insert(step.groups.begin(), step.groups.end());
    }
    before = step.after;
  }
}

std::optional<LocalArray> moved(const spmd::ReshardPlan& plan, const spmd::Shape& shape,
                                const Distribution& from, int rank, GroupsByRanks& groups,
                                std::optional<LocalArray> array) {
  Distribution before = from;
  for (const Step& step : plan.steps) {
    array = Carrying(step, shape, before, rank, groups).out(std::move(array));
    before = step.after;
  }
  return array;
}

}  // namespace pipewright::exec::graphs
