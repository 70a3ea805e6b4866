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

Sizes times(const Sizes& rows, std::size_t row_bytes) {
  Sizes bytes;
  for (const std::size_t one : rows) bytes.push_back(one * row_bytes);
  return bytes;
}

}  // namespace

void bring_counts_together(ExchangeOfMembers& exchange, collectives::Group& group) {
  if (!exchange.make_room) return;
  const auto members = static_cast<std::size_t>(group.members());
  const Sizes each(members, exchange.counts_out.size() / members * sizeof(std::int32_t));
  group.all_to_all({std::as_bytes(std::span(exchange.counts_out)), each},
                   {std::as_writable_bytes(std::span(exchange.counts_in)), each});
  exchange.make_room();
}

void bring_rows_together(const ExchangeOfMembers& exchange, std::size_t number_bytes,
                         const std::byte* out, std::byte* in, collectives::Group& group) {
  const std::size_t row_bytes = static_cast<std::size_t>(exchange.width) * number_bytes;
  const Sizes sent = times(exchange.rows_out, row_bytes), come = times(exchange.rows_in, row_bytes);
  group.all_to_all({{out, sum_of(sent)}, sent}, {{in, sum_of(come)}, come});
}

void bring_together(ExchangeOfMembers& exchange, collectives::Group& group) {
  bring_counts_together(exchange, group);
  bring_rows_together(exchange, sizeof(float), reinterpret_cast<const std::byte*>(exchange.out),
                      reinterpret_cast<std::byte*>(exchange.in), group);
}

}  // namespace pipewright::exec
