#include "exec/layers/expert_dispatch.hpp"

#include <numeric>
#include <utility>

#include "core/order/call.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

std::size_t sum_of(const std::vector<std::size_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::size_t{0});
}

}  // namespace

ExpertDispatch::ExpertDispatch(const LayerSite& site, const RouterShape& router)
    : ops_(*site.ops),
      group_(site.experts),
      name_(as_call_name(site.path)),
      runs_(static_cast<std::size_t>(router.runs())),
      even_(even_rows(router.choice, router.place.rows(), router.place.parts())),
      most_in_(most_rows(router.choice, router.place.rows(),
                         router.choice.experts / (group_ == nullptr ? 1 : group_->size()),
                         router.place.parts())),
      places_(site.own_extent().words(router.choice.top_k)) {}

RunBegins ExpertDispatch::begins_in(const Routes& routes) const {
  return ops_.experts().fetch_begins(routes.begin, runs_, even_);
}

/// Counts are by expert, those of one member after those of another.
std::vector<std::size_t> ExpertDispatch::rows_by_member(const Counts& counts) const {
  const auto members = static_cast<std::size_t>(group_->size());
  std::vector<std::size_t> rows(members, 0);
  for (std::size_t i = 0; i < counts.size(); ++i)
    rows[i / (counts.size() / members)] += static_cast<std::size_t>(counts[i]);
  return rows;
}

ExchangeOfMembers ExpertDispatch::exchange(const char* way, int width, const Buffer& out) const {
  return {.what = name_ + "/" + way, .rows = even_, .width = width, .out = out.floats()};
}

Buffer ExpertDispatch::take(std::size_t rows, int width) const {
  return ops_.take(rows * static_cast<std::size_t>(width));
}

Task<ExpertDispatch::Received> ExpertDispatch::send_first(Buffer sorted, int width,
                                                          const RunBegins& sent) {
  if (group_ == nullptr)
    co_return Received{std::move(sorted), {sent, static_cast<std::int64_t>(places_)}};
  Received received;
  ExchangeOfMembers way = exchange("dispatch", width, sorted);
  way.counts_out = counts_of(sent);
  way.counts_in.resize(way.counts_out.size());
  count_evenly(even_, way.counts_in);
  way.most_in = most_in_;
  way.make_room = [&] {
    received.runs.begins = begins_of(way.counts_in);
    way.rows_out = rows_by_member(way.counts_out);
    way.rows_in = rows_by_member(way.counts_in);
    received.runs.rows = static_cast<std::int64_t>(sum_of(way.rows_in));
    received.rows = take(sum_of(way.rows_in), width);
    way.in = received.rows.floats();
  };
  co_await group_->exchanged(way);
  co_return received;
}

Task<Buffer> ExpertDispatch::send(Buffer sorted, int width, const RunBegins& sent,
                                  const Runs& received) {
  if (group_ == nullptr) co_return sorted;
  co_return co_await carry("dispatch", std::move(sorted), width, counts_of(sent),
                           counts_of(received.begins), static_cast<std::size_t>(received.rows));
}

Task<Buffer> ExpertDispatch::send_back(Buffer made, int width, const RunBegins& sent,
                                       const Runs& received) {
  if (group_ == nullptr) co_return made;
  co_return co_await carry("combine", std::move(made), width, counts_of(received.begins),
                           counts_of(sent), places_);
}

/// By expert so many rows go out and come in, into an array with room for so many.
Task<Buffer> ExpertDispatch::carry(const char* name, Buffer out, int width, Counts counts_out,
                                   Counts counts_in, std::size_t room) {
  ExchangeOfMembers way = exchange(name, width, out);
  way.rows_out = rows_by_member(counts_out);
  way.rows_in = rows_by_member(counts_in);
  Buffer in = take(room, width);
  way.in = in.floats();
  co_await group_->exchanged(way);
  co_return in;
}

}  // namespace pipewright::exec
