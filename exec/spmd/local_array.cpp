#include "exec/spmd/local_array.hpp"

#include "core/spmd/reshard_steps.hpp"

namespace pipewright::exec::graphs {
namespace {

/// Calls act(where in the array, where in the box) for every row of the last dimension, with its
/// length.
template <class Act>
void for_each_row(const spmd::LocalPart& part, const spmd::LocalPart& box, Act act) {
  const std::size_t all = sized(spmd::elements_of(box));
  if (all == 0) return;
  const std::size_t rank = box.shape.size();
  const std::size_t width = rank == 0 ? 1 : sized(box.shape.back());
  spmd::Shape index(rank);
  for (std::size_t at = 0; at < all; at += width) {
    std::size_t place = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      place = place * sized(part.shape[axis]) +
              sized(box.offset[axis] - part.offset[axis] + index[axis]);
    }
    act(place, at, width);
    for (std::size_t axis = rank; axis-- > 1;) {
      if (++index[axis - 1] < box.shape[axis - 1]) break;
      index[axis - 1] = 0;
    }
  }
}

}  // namespace

LocalArray zeros_of(spmd::LocalPart part) {
  LocalArray array{std::move(part), {}};
  array.values.resize(sized(spmd::elements_of(array.part)));
  return array;
}

void pack_box(const LocalArray& from, const spmd::LocalPart& box, float* packed) {
  for_each_row(from.part, box, [&](std::size_t place, std::size_t at, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) packed[at + i] = from.values[place + i];
  });
}

void unpack_box(const float* packed, const spmd::LocalPart& box, LocalArray& to) {
  for_each_row(to.part, box, [&](std::size_t place, std::size_t at, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) to.values[place + i] = packed[at + i];
  });
}

void copy_box(const LocalArray& from, const spmd::LocalPart& box, LocalArray& to, bool adds) {
  std::vector<float> packed(sized(spmd::elements_of(box)));
  pack_box(from, box, packed.data());
  if (adds) {
    std::vector<float> there(packed.size());
    pack_box(to, box, there.data());
    for (std::size_t i = 0; i < packed.size(); ++i) packed[i] += there[i];
  }
  unpack_box(packed.data(), box, to);
}

}  // namespace pipewright::exec::graphs
