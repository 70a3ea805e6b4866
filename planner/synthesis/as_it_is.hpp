// A named order as it is, also where the search's sequences cannot hold it: overlapped pairs, I and
// W fused here and apart there, micro-batches that go both ways. Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/synthesis/synthesis.hpp"

namespace pipewright::planner::synthesis {

struct AsItIs {
  Order order;
  std::int64_t makespan_ns = 0, span_ns = 0;

  std::int64_t value(Objective objective) const {
    return objective == Objective::Makespan ? makespan_ns : span_ns;
  }
};

/// The order's times under preset `ideal`; nullopt where it never ends or a rank holds more than
/// the request's limit. `order`: with as many stages as the request has costs.
std::optional<AsItIs> time_as_it_is(const SynthesisRequest& request, Order order);

/// Whether a B may be better than an I and a W: shorter than both, or its I takes memory that its W
/// gives back. Else it is never worse to take it apart.
bool fusing_helps(const SynthesisRequest& request);

/// Whether the order has pairs, or may be shorter or hold less than with each B as an I followed by
/// a W.
bool differs_as_it_is(const SynthesisRequest& request, const Order& order);

/// No order at all has a value below, pairs and mixtures of fused and split backwards included: the
/// work of the busiest rank.
std::int64_t work_bound(const SynthesisRequest& request, const Placement& placement);

}  // namespace pipewright::planner::synthesis
