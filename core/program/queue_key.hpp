// Which ends of a rank's transfers share a queue (docs/semantics.md §2.1).
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace pipewright {

/// What says so where transfer ends do not stand on the compute lane.
inline Channel queue_channel(const CommPolicy& policy) {
  return policy.issue == Issue::Grouped ? Channel::Edge : policy.channel;
}

/// 0: activations, 1: gradients, 2: neither.
inline std::int64_t direction_of(const Route& route) {
  if (route.send_kind == ActionKind::NamedSend) return 2;
  return route.send_kind == ActionKind::SendF ? 0 : 1;
}

/// Equal for the ends that share one; not of calls in lines, nor of batches that are one operation.
/// Under `tag` none share one.
inline std::int64_t queue_key(const Route& route, bool sends, Channel channel) {
  const std::int64_t peer = (sends ? route.destination : route.source).value;
  if (channel == Channel::Direction) return direction_of(route);
  if (channel == Channel::Pair) return 2 * (peer + 1);
  if (channel == Channel::Edge) return 2 * (peer + 1) + (sends ? 1 : 0);
  return 0;
}

}  // namespace pipewright
