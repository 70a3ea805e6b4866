// What one process holds of a tensor of a graph: a box of its elements, row major. Whole numbers
// (ids, labels) are floats too, which have all below 2^24.
#pragma once

#include <vector>

#include "core/spmd/local_part.hpp"

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

}  // namespace pipewright::exec::graphs
