// Policies that NCCL can give, for tests that try all of them.
#pragma once

#include <vector>

#include "core/order/comm_policy.hpp"

namespace pipewright::test {

/// Every issue with every channel, place of receives and run order that means something there,
/// connections ready and made by the first use, and a ring of two places under `stream`.
inline std::vector<CommPolicy> nccl_policies() {
  std::vector<CommPolicy> all;
  for (const Post post : {Post::Early, Post::Deferred, Post::AtStart}) {
    for (const Connect connect : {Connect::Ready, Connect::FirstUse}) {
      for (const Channel channel : {Channel::Edge, Channel::Pair, Channel::Rank}) {
        for (const int in_flight : {0, 2})
          all.push_back(
              {.channel = channel, .post = post, .connect = connect, .in_flight = in_flight});
      }
      if (post == Post::AtStart) continue;
      for (const RunOrder run_order : {RunOrder::AsLowered, RunOrder::EvenOdd}) {
        for (const Issue issue : {Issue::Inline, Issue::Grouped})
          all.push_back({.issue = issue, .post = post, .run_order = run_order, .connect = connect});
      }
    }
  }
  return all;
}

}  // namespace pipewright::test
