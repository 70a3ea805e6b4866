// What one process holds of a tensor of a graph: a box of its elements, row major. Whole numbers
// (ids, labels) are floats too, which have all below 2^24.
#pragma once

#include <vector>

#include "core/spmd/local_part.hpp"
#include "core/spmd/reshard_steps.hpp"

namespace pipewright::exec::graphs {

struct LocalArray {
  spmd::LocalPart part = {};
  std::vector<float> values = {};
};

inline std::size_t sized(std::int64_t size) { return static_cast<std::size_t>(size); }

/// Zeros.
LocalArray zeros_of(spmd::LocalPart part);

/// Copies the elements that lie in `box` from one to the other; both have them. Added to what is
/// there, where asked.
void copy_box(const LocalArray& from, const spmd::LocalPart& box, LocalArray& to,
              bool adds = false);

/// The elements of a box that lies in the array, one after another, and back.
void pack_box(const LocalArray& from, const spmd::LocalPart& box, float* packed);
void unpack_box(const float* packed, const spmd::LocalPart& box, LocalArray& to);

/// Calls act(where in the array, where in the box, how many) for every row of a box that lies in
/// the array, in ascending order.
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

}  // namespace pipewright::exec::graphs
