#include "planner/bounds/closed_form_rules.hpp"

#include <algorithm>

#include "planner/base/number_text.hpp"
#include "planner/schedules/rounds.hpp"

namespace pipewright::planner {
namespace {

using Bubble = std::optional<std::int64_t>;
using Terms = FormulaTerms;

/// Micro-batches a group of `interleaved`, as the schedule itself chooses it.
int group_of(const ScheduleRequest& request) {
  const auto found = request.parameters.find("group");
  if (found != request.parameters.end()) return positive_integer(found->second).value_or(0);
  return equal_round(request);
}

/// Arithmetic in 64 bits: m * v may be larger than an int.
int at_most(std::int64_t all, std::int64_t ahead) { return static_cast<int>(std::min(all, ahead)); }

Bubble fill_and_drain(const Terms& t) { return (t.p - 1) * (t.f + t.b + 2 * t.latency); }

Bubble naive(const Terms& t) { return t.m * (t.p - 1) * (t.f + t.b + 2 * t.latency); }

/// With fewer micro-batches than ranks each further chunk waits for the ranks without work.
Bubble looped_bfs(const Terms& t) {
  return (t.p - 1 + (t.v - 1) * std::max<std::int64_t>(0, t.p - t.m)) * (t.f + t.b);
}

Bubble interleaved(const Terms& t) {
  if (t.m < t.p || group_of(t.request) != t.p) return std::nullopt;
  return (t.p - 1) * (t.f + t.b);
}

Bubble zb_h1(const Terms& t) {
  const std::int64_t q = std::min(t.m, t.p);
  const std::int64_t more = std::max(t.f, t.i), less = std::min(t.f, t.i);
  return (t.p - 1) * more + (q - 1) * std::max<std::int64_t>(0, less - t.w) + (t.p - q) * less;
}

/// The paper's (p-1)(F+I-2W) is the first rank's span; where I is long the ranks wait for each
/// other's I's instead. The makespan also has the last rank's late start.
std::int64_t zb_h2_span(const Terms& t) {
  return (t.p - 1) * std::max({std::int64_t{0}, t.i - t.f, t.f + t.i - 2 * t.w});
}
Bubble zb_h2(const Terms& t) {
  if (t.m < 2 * t.p - 1) return std::nullopt;
  return std::max((t.p - 1) * t.f, zb_h2_span(t));
}

Bubble interleaved_zb(const Terms& t) {
  if (t.v > 1 && t.m < t.p) return std::nullopt;
  return zb_h1(t);
}

std::int64_t zbv_span(const Terms& t) { return (t.p - 1) * 2 * (t.i - t.w); }
Bubble zbv(const Terms& t) {
  if (t.m < 2 * t.p - 1 || t.f != t.i || t.i < t.w) return std::nullopt;
  return std::max((t.p - 1) * t.f, zbv_span(t));
}

/// DeepSeek's F&B + B - 3W with F&B = F + B and B = I + W.
Bubble dualpipe_of(const Terms& t, std::int64_t places) {
  if (t.f != t.i || t.i < t.w || t.b != t.i + t.w) return std::nullopt;
  return (places - 1) * (t.f + 2 * t.i - t.w);
}
Bubble dualpipev(const Terms& t) { return dualpipe_of(t, t.p); }
Bubble dualpipe(const Terms& t) { return dualpipe_of(t, t.p / 2); }

Bubble chimera(const Terms& t) {
  if (t.f != t.b) return std::nullopt;
  return (t.p - 2) * t.f;
}

Bubble hanayo(const Terms& t) {
  if (t.m < t.p || t.f > t.b) return std::nullopt;
  const auto found = t.request.parameters.find("backward");
  const bool fused = found != t.request.parameters.end() && found->second == "fused";
  return (t.p - 1) * (fused ? 2 * t.b : t.i + std::max(t.f, t.i));
}

int peak_of_1f1b(const ScheduleRequest& request, int rank) {
  return std::min(request.ranks - rank, request.micro_batches);
}
int peak_of_eager_1f1b(const ScheduleRequest& request, int rank) {
  return std::min(2 * (request.ranks - rank) - 1, request.micro_batches);
}
int peak_of_interleaved(const ScheduleRequest& request, int rank) {
  return at_most(
      std::int64_t{request.micro_batches} * request.chunks,
      std::int64_t{request.chunks - 1} * group_of(request) + 2 * (request.ranks - 1 - rank) + 1);
}
int peak_of_interleaved_zb(const ScheduleRequest& request, int /*rank*/) {
  return at_most(std::int64_t{request.micro_batches} * request.chunks,
                 std::int64_t{request.chunks - 1} * equal_round(request) + request.ranks);
}
int peak_of_zbv(const ScheduleRequest& request, int rank) {
  const int m = request.micro_batches;
  return std::min({2 * m, m + 1 + rank, 2 * request.ranks});
}
int peak_of_chimera(const ScheduleRequest& request, int rank) {
  return request.ranks / 2 + 1 + std::min(rank, request.ranks - 1 - rank);
}
int peak_of_hanayo(const ScheduleRequest& request, int rank) {
  return request.chunks * request.micro_batches -
         std::min(request.ranks - 1 - rank, request.micro_batches - 1);
}

/// Half, a third and two thirds of 1F1B's p micro-batches (2p chunks), rounded to whole periods of
/// the building block. No proof: found by running, and held for all p up to 64 in
/// tests/property/building_blocks_test.cpp.
int peak_of_v_half(const ScheduleRequest& request, int /*rank*/) {
  return 2 * (request.ranks / 2) + 2;
}
int most_of_v_min(int ranks) { return 2 * ((ranks + 4) / 3); }
/// Its reorderings find no use for the last activation of rank 0 where p mod 3 is 2.
int peak_of_v_min(const ScheduleRequest& request, int rank) {
  return most_of_v_min(request.ranks) - (rank == 0 && request.ranks % 3 == 2 ? 1 : 0);
}
int peak_of_1f1b_v(const ScheduleRequest& request, int /*rank*/) {
  return 2 * ((2 * request.ranks + 3) / 3);
}
/// Whether there are enough micro-batches to reach the repeated block on every rank.
bool reaches_v_half(const ScheduleRequest& q) {
  return q.micro_batches >= peak_of_v_half(q, 0) - 1;
}
bool reaches_v_min(const ScheduleRequest& q) {
  return q.micro_batches >= most_of_v_min(q.ranks) - 1;
}
bool reaches_1f1b_v(const ScheduleRequest& q) {
  return q.micro_batches >= peak_of_1f1b_v(q, 0) - 1;
}

/// G micro-batches wait in each chunk but the last; in the last, those that are on their way on the
/// ranks below.
int peak_of_grouped_interleaved(const ScheduleRequest& request, int rank) {
  const int p = request.ranks, m = request.micro_batches;
  const auto found = request.parameters.find("group");
  const int group =
      found == request.parameters.end() ? (p + 1) / 2 : positive_integer(found->second).value_or(0);
  return (request.chunks - 1) * std::min(m, group) + std::min(m, p - rank);
}

constexpr ClosedFormRule kRules[] = {
    {"naive", [](const ScheduleRequest&, int) { return 1; }, naive, true},
    {"gpipe", [](const ScheduleRequest& q, int) { return q.micro_batches; }, fill_and_drain, true},
    {"1f1b", peak_of_1f1b, fill_and_drain},
    {"eager-1f1b", peak_of_eager_1f1b, fill_and_drain},
    {"looped-bfs", [](const ScheduleRequest& q, int) { return q.micro_batches * q.chunks; },
     looped_bfs},
    {"interleaved", peak_of_interleaved, interleaved},
    {"zb-h1", [](const ScheduleRequest& q, int) { return std::min(q.ranks, q.micro_batches); },
     zb_h1},
    {"zb-h2",
     [](const ScheduleRequest& q, int) { return std::min(2 * q.ranks - 1, q.micro_batches); },
     zb_h2, false, zb_h2_span},
    {"interleaved-zb", peak_of_interleaved_zb, interleaved_zb},
    {"zbv", peak_of_zbv, zbv, false, zbv_span},
    {"dualpipev", [](const ScheduleRequest& q, int) { return 2 * q.ranks + 1; }, dualpipev},
    {"dualpipe", [](const ScheduleRequest& q, int) { return q.ranks + 1; }, dualpipe},
    {"chimera", peak_of_chimera, chimera},
    {"hanayo", peak_of_hanayo, hanayo},
    {"v-half", peak_of_v_half, nullptr, false, nullptr, reaches_v_half},
    {"v-min", peak_of_v_min, nullptr, false, nullptr, reaches_v_min},
    {"1f1b-v", peak_of_1f1b_v, nullptr, false, nullptr, reaches_1f1b_v},
    {"grouped-interleaved", peak_of_grouped_interleaved, nullptr},
    {"paddle-zbh1", [](const ScheduleRequest& q, int) { return q.ranks; }, nullptr},
};

}  // namespace

std::span<const ClosedFormRule> closed_form_rules() { return kRules; }

}  // namespace pipewright::planner
