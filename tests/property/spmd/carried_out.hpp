// The steps of a reshard, carried out on what each rank holds.
#pragma once

#include <map>
#include <vector>

#include "core/spmd/reshard_steps.hpp"

namespace pipewright::spmd::test {

/// What a rank holds: its part and the values in it, row major.
struct Held {
  LocalPart part;
  std::vector<double> values;
};
using State = std::map<int, Held>;

/// Calls `act(index in the whole tensor, place in the part)` for each element of a part.
template <class Act>
void for_each_element(const LocalPart& part, Act act) {
  Shape at = part.offset;
  for (std::int64_t place = 0; place < elements_of(part); ++place) {
    act(at, static_cast<std::size_t>(place));
    for (std::size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < part.offset[axis] + part.shape[axis]) break;
      at[axis] = part.offset[axis];
    }
  }
}

/// nullptr where the part does not hold the element.
const double* find(const Held& held, const Shape& at);
double* find(Held& held, const Shape& at);

/// Contributions of two processes as one.
double combined(Reduction reduction, double one, double other);

/// Expects that transfers send what is there where it is wanted, and as many bytes as the step
/// says of elements of `element_bytes`.
State carried_out(const Shape& shape, const ReshardStep& step, const State& before,
                  Reduction reduction = Reduction::Sum, std::int64_t element_bytes = 4);

}  // namespace pipewright::spmd::test
