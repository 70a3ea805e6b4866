// `--slow-link 25GB/s`: a copy on one GPU is a hundred times faster than the network that it stands
// for, so a message is held for as long as that network would take before it is copied. Pure
// functions; times in nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"

namespace pipewright::exec::cuda {

struct SlowLink {
  Nanoseconds latency;
  double bytes_per_second = 0;  // more than 0
};

/// "25GB/s", or with a latency "25GB/s+5us". Throws InputError naming the flag.
SlowLink parse_slow_link(std::string_view text);

/// How long a message is held, by route: latency + bytes / bandwidth, rounded up
/// (docs/semantics.md §5).
std::vector<std::int64_t> transfer_ns(const Program& program, const CostTable& costs,
                                      const SlowLink& link);

}  // namespace pipewright::exec::cuda
