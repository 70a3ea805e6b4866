// 1F1B-RR: PipeDream with replicated stages. Micro-batch k runs on replica k mod R of each stage,
// its backward where its forward was (the paper, section 3.2). Ranks are numbered stage after
// stage. The run-ahead is that of PipeDream's runtime: the ranks after the first one of the stage,
// shared among the stage's replicas. The runtime reduces a replicated stage's gradients inside each
// backward; here REDUCE_GRAD says so, and the update follows. All replicas of a stage then reduce
// in the same rounds, which is why m has to be a multiple of each R.
#include <algorithm>
#include <numeric>

#include "planner/base/number_text.hpp"
#include "planner/schedules/building.hpp"
#include "planner/schedules/entries.hpp"

namespace pipewright::planner {
namespace {

/// More micro-batches than an order can have.
constexpr std::int64_t kTooMany = std::int64_t{1} << 31;

/// Ranks of each stage. Empty where the parameter is not a list of counts.
std::vector<int> replicas_of(const ScheduleRequest& request) {
  const auto found = request.parameters.find("replicas");
  if (found == request.parameters.end()) {
    // The shortest example of what the schedule is about: two ranks for the first stage.
    std::vector<int> replicas(static_cast<std::size_t>(std::max(1, request.ranks - 1)), 1);
    if (request.ranks > 1) replicas.front() = 2;
    return replicas;
  }
  std::vector<int> replicas;
  std::string_view text = found->second;
  while (true) {
    const auto comma = text.find(',');
    const auto count = positive_integer(text.substr(0, comma));
    if (!count) return {};
    replicas.push_back(*count);
    if (comma == std::string_view::npos) return replicas;
    text.remove_prefix(comma + 1);
  }
}

std::string example_for(int ranks) {
  return ranks == 1 ? "1" : "2" + std::string(ranks > 2 ? ",1" : "") + (ranks > 3 ? ",…" : "");
}

std::optional<std::string> refuse_one_f_one_b_rr(const ScheduleRequest& request) {
  if (auto refused = refuse_chunks("1f1b-rr", request)) return refused;
  const auto replicas = replicas_of(request);
  const int p = request.ranks, m = request.micro_batches;
  const std::int64_t sum = std::accumulate(replicas.begin(), replicas.end(), std::int64_t{0});
  if (sum != p) {
    return "the parameter replicas lists the ranks of each stage, together " + std::to_string(p) +
           " (such as " + example_for(p) + "), not \"" + request.parameters.at("replicas") + "\"";
  }
  std::int64_t step = 1;
  for (const int count : replicas) step = std::min(std::lcm(step, std::int64_t{count}), kTooMany);
  if (m % step == 0) return std::nullopt;
  if (step == kTooMany) {
    return "1f1b-rr needs a number of micro-batches that all numbers of replicas divide, and the "
           "least one is beyond 2000 million; use replicas that divide each other, such as 4,2,1";
  }
  const std::int64_t less = m / step * step;
  return "1f1b-rr hands the micro-batches round each stage's replicas, so their number is a "
         "multiple "
         "of " +
         std::to_string(step) + ", not " + std::to_string(m) + "; use " +
         (less > 0 ? std::to_string(less) + " or " : "") + std::to_string(less + step) +
         " micro-batches";
}

Placement placement_of(const std::vector<int>& replicas, int ranks, int micro_batches) {
  std::vector<std::vector<RankId>> rank_of(replicas.size());
  int first = 0;
  for (std::size_t s = 0; s < replicas.size(); ++s) {
    rank_of[s].reserve(static_cast<std::size_t>(micro_batches));
    for (int k = 0; k < micro_batches; ++k) rank_of[s].emplace_back(first + k % replicas[s]);
    first += replicas[s];
  }
  return Placement::explicit_micro_batches(std::move(rank_of), ranks);
}

/// Writes one replica: its j-th micro-batch is j * count + replica.
void write_replica(int stage, int replica, int count, int ahead, int rounds,
                   std::vector<Cell>& cells) {
  const auto add = [&](ActionKind kind, int j) {
    append_version(cells, kind, stage, j * count + replica, std::max(0, j - ahead));
  };
  for (int j = 0; j < ahead; ++j) add(ActionKind::F, j);
  for (int j = 0; j < rounds; ++j) {
    if (ahead + j < rounds) add(ActionKind::F, ahead + j);
    add(ActionKind::B, j);
    if (count > 1) append_reduction(cells, stage);
    append_update(cells);
  }
}

Order make_one_f_one_b_rr(const ScheduleRequest& request) {
  const auto replicas = replicas_of(request);
  const int p = request.ranks, m = request.micro_batches;
  Order order;
  order.micro_batches = m;
  order.placement = placement_of(replicas, p, m);
  order.ranks.resize(static_cast<std::size_t>(p));
  int first = 0;
  for (std::size_t s = 0; s < replicas.size(); ++s) {
    const int count = replicas[s], rounds = m / count;
    const int ahead = std::min((p - 1 - first) / count, rounds);
    for (int replica = 0; replica < count; ++replica) {
      auto& cells = order.ranks[static_cast<std::size_t>(first + replica)];
      cells.reserve(4 * static_cast<std::size_t>(rounds));
      write_replica(static_cast<int>(s), replica, count, ahead, rounds, cells);
    }
    first += count;
  }
  return order;
}

}  // namespace

Schedule one_f_one_b_rr_schedule() {
  Schedule entry;
  entry.name = "1f1b-rr";
  entry.aliases = {"one-f-one-b-rr", "1F1B-round-robin"};
  entry.text.summary = "PipeDream with replicated stages: micro-batches go round the replicas";
  entry.text.constraint =
      "v = 1; replicas=R0,R1,… (ranks of each stage) sums to p; m a multiple of each R";
  entry.text.bubble = "none known";
  entry.text.memory =
      "1 + (p-1 - ranks of earlier stages)/R rounded down, each with its weight version";
  entry.text.source =
      "PipeDream (arXiv:1806.03377; SOSP 2019) section 3.2, msr-fiddle/pipedream runtime.py";
  entry.parameters = {"replicas"};
  entry.layout = Layout::Replicas;
  entry.traits.asynchronous = true;
  entry.refusal = refuse_one_f_one_b_rr;
  entry.make = make_one_f_one_b_rr;
  return entry;
}

}  // namespace pipewright::planner
