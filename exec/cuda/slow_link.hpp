// `--slow-link 25GB/s`: a copy on one GPU is much faster than the network that it stands for, so
// its stream waits until the slow link would have been done. Pure functions; times in nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/costs.hpp"
#include "core/program.hpp"

namespace pipewright::exec::cuda {

struct SlowLink {
  Nanoseconds latency;
  double bytes_per_second = 0;  // more than 0
};

/// "25GB/s", or with a latency "25GB/s+5us". Throws InputError naming the flag.
SlowLink parse_slow_link(std::string_view text);

/// From the moment at which data may move to the earliest end of the transfer, by route: latency +
/// bytes / bandwidth, rounded up (docs/semantics.md §5). The spin on the copy's stream ends then,
/// or with the copy if that takes longer.
std::vector<std::int64_t> least_transfer_ns(const Program& program, const CostTable& costs,
                                            const SlowLink& link);

}  // namespace pipewright::exec::cuda
