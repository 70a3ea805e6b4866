#include "exec/training/expert_exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace pipewright::exec {
namespace {

using Sizes = std::vector<std::size_t>;

std::size_t sum_of(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

void exchange_counts(ExchangeOfMembers& exchange, collectives::Group& group) {
  const auto members = static_cast<std::size_t>(group.members());
  const Sizes each(members, exchange.counts_out.size() / members * sizeof(std::int32_t));
  group.all_to_all({std::as_bytes(std::span(exchange.counts_out)), each},
                   {std::as_writable_bytes(std::span(exchange.counts_in)), each});
}

Sizes bytes_of(const Sizes& rows, int width) {
  Sizes bytes;
  for (const std::size_t one : rows)
    bytes.push_back(one * static_cast<std::size_t>(width) * sizeof(float));
  return bytes;
}

}  // namespace

void bring_together(ExchangeOfMembers& exchange, collectives::Group& group) {
  if (exchange.make_room) {
    exchange_counts(exchange, group);
    exchange.make_room();
  }
  const Sizes out = bytes_of(exchange.rows_out, exchange.width);
  const Sizes in = bytes_of(exchange.rows_in, exchange.width);
  group.all_to_all({{reinterpret_cast<const std::byte*>(exchange.out), sum_of(out)}, out},
                   {{reinterpret_cast<std::byte*>(exchange.in), sum_of(in)}, in});
}

}  // namespace pipewright::exec
