#include "core/costs/factor.hpp"

#include <algorithm>

#include "core/base/int128.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright {

std::int64_t scaled(std::int64_t n, Factor f) {
  const Int128 twice = Int128{n} * f.millionths * 2 + Factor::kOne;
  const std::int64_t most = std::max(n, kMostNanoseconds);
  return static_cast<std::int64_t>(std::min<Int128>(most, twice / (2 * Factor::kOne)));
}

Nanoseconds scaled(Nanoseconds time, Factor f) { return Nanoseconds(scaled(time.value, f)); }

Factor product(Factor a, Factor b) { return {scaled(a.millionths, b)}; }

}  // namespace pipewright
