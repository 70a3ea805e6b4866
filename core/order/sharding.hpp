// How the replicas of a stage divide what they keep of it among them: ZeRO (Rajbhandari et al.,
// arXiv:1910.02054; docs/semantics.md §3.2). Plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pipewright {

struct Sharding {
  /// ZeRO's stage. Below 2, UNSHARDs alone say which stages are sharded.
  int zero = 0;
  /// Of replicas that follow one another, each of which has all parts (hybrid sharding).
  int groups = 1;
  /// For lower() alone: so many stages that come next are gathered beside the one at hand.
  int ahead = 0;

  /// Of the sum of its gradients a replica keeps its part alone.
  bool divides_gradients() const { return zero >= 2; }
  /// It has all weights from an UNSHARD to the next RESHARD only.
  bool divides_weights() const { return zero >= 3; }
  bool operator==(const Sharding&) const = default;
};

/// Sets "zero" or "groups". A sentence that says what is wrong; else "".
std::string set_field(std::string_view name, std::int64_t value, Sharding& sharding);
/// "zero=3 groups=2", of what differs from a Sharding that says nothing; so may be "".
std::string to_string(const Sharding& sharding);
/// Of so many replicas the group of this one, both counted from 0.
int group_of(const Sharding& sharding, int replica, int replicas);

}  // namespace pipewright
