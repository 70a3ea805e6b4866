// Where the elements of a larger array come from in a smaller one whose dimensions of size 1 are
// repeated, aligned at the last dimensions.
#pragma once

#include <vector>

#include "core/spmd/layout.hpp"

namespace pipewright::exec::graphs {

class BroadcastPlaces {
 public:
  BroadcastPlaces(const spmd::Shape& small, const spmd::Shape& large) {
    std::size_t elements = 1;
    for (const std::int64_t size : large) elements *= static_cast<std::size_t>(size);
    places_.reserve(elements);
    spmd::Shape index(large.size());
    for (std::size_t at = 0; at < elements; ++at) {
      places_.push_back(place_of(small, index));
      for (std::size_t axis = large.size(); axis-- > 0;) {
        if (++index[axis] < large[axis]) break;
        index[axis] = 0;
      }
    }
  }

  /// Of the larger array's element number `at`.
  std::size_t at(std::size_t at) const { return places_[at]; }

 private:
  static std::size_t place_of(const spmd::Shape& small, const spmd::Shape& index) {
    const std::size_t more = index.size() - small.size();
    std::size_t place = 0;
    for (std::size_t axis = 0; axis < small.size(); ++axis) {
      const std::int64_t own = small[axis] == 1 ? 0 : index[more + axis];
      place = place * static_cast<std::size_t>(small[axis]) + static_cast<std::size_t>(own);
    }
    return place;
  }

  std::vector<std::size_t> places_;
};

}  // namespace pipewright::exec::graphs
