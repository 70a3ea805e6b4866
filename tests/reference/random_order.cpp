#include "tests/reference/random_order.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "tests/reference/lowering.hpp"

namespace pipewright::reference {
namespace {

/// Makes a valid order by taking, again and again, any action that could run.
class Scheduler {
 public:
  Scheduler(Dice& dice, const RandomOptions& options)
      : dice_(dice), extra_(dice), options_(options) {
    ranks_ = dice.between(1, options.most_ranks);
    chunks_ = dice.between(1, options.most_chunks);
    micro_batches_ = dice.between(1, options.most_micro_batches);
    stages_ = ranks_ * chunks_;
    split_ = dice.below(3);  // B everywhere, I and W everywhere, both
    place();
  }

  RandomOrder run() {
    RandomOrder result;
    result.order.resize(ranks_);
    start_actions();
    while (!open_.empty()) take(result.order);
    if (options_.pairs && dice_.chance(30)) overlap(result.order);
    if (options_.bookkeeping && dice_.chance(20)) keep_books(result.order);
    const bool asynchronous = options_.versions && dice_.chance(25);
    if (asynchronous) update_inside(result.order);
    result.what = "p=" + std::to_string(ranks_) + " v=" + std::to_string(chunks_) +
                  " m=" + std::to_string(micro_batches_) + " " + placement_name_ +
                  (asynchronous ? ", asynchronous" : "");
    return result;
  }

 private:
  void place() {
    const int kind = dice_.below(options_.replicas ? 5 : 4);
    static const char* const names[] = {"loop", "v", "explicit", "one after another",
                                        "two directions"};
    placement_name_ = names[kind];
    for (int s = 0; s < stages_; ++s) {
      const int turn = s / ranks_;
      const int forth = s % ranks_, back = ranks_ - 1 - s % ranks_;
      const int by_kind[] = {forth, turn % 2 == 0 ? forth : back, dice_.below(ranks_), s / chunks_,
                             forth};
      for (int m = 0; m < micro_batches_; ++m) {
        const bool mirrored = kind == 4 && m % 2 == 1;
        rank_of_[{s, m}] = mirrored ? ranks_ - 1 - by_kind[kind] : by_kind[kind];
      }
    }
  }

  void start_actions() {
    // Sometimes one pass after the other, so that schedules with little in flight occur too.
    eager_backward_ = dice_.below(3) * 40;
    for (int m = 0; m < micro_batches_; ++m) open_.push_back({0, "F", m, -1});
  }

  void take(Order& order) {
    std::vector<std::size_t> choice;
    const bool backward = dice_.chance(eager_backward_);
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (!backward || open_[i].kind != "F") choice.push_back(i);
    }
    if (choice.empty()) choice.push_back(dice_.below(static_cast<int>(open_.size())));
    const std::size_t at = choice[dice_.below(static_cast<int>(choice.size()))];
    const Action action = open_[at];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
    order[rank_of_.at({action.stage, action.micro_batch})].push_back({action});
    open_next(action);
  }

  void open_next(const Action& taken) {
    const int m = taken.micro_batch;
    if (taken.kind == "F") {
      if (taken.stage + 1 < stages_)
        open_.push_back({taken.stage + 1, "F", m, -1});
      else
        open_backward(taken.stage, m);
    } else if (taken.kind == "I" || taken.kind == "B") {
      if (taken.kind == "I") open_.push_back({taken.stage, "W", m, -1});
      if (taken.stage > 0) open_backward(taken.stage - 1, m);
    }
  }

  void open_backward(int stage, int m) {
    const bool fused = split_ == 0 || (split_ == 2 && dice_.chance(50));
    open_.push_back({stage, fused ? "B" : "I", m, -1});
  }

  /// Makes pairs of some neighbours. What was valid may hang then: the pair needs the inputs of
  /// both.
  void overlap(Order& order) {
    for (Row& row : order) {
      for (std::size_t i = 0; i + 1 < row.size(); ++i) {
        if (row[i].size() > 1 || row[i + 1].size() > 1 || !dice_.chance(30)) continue;
        const Action first = row[i][0], second = row[i + 1][0];
        if (first.kind == "F" && (second.kind == "B" || second.kind == "I")) {
          row[i] = {first, second};
          row.erase(row.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
      }
    }
  }

  void keep_books(Order& order) {
    const bool clips = dice_.chance(40), ties = extra_.chance(30);
    for (Row& row : order) {
      std::set<int> stages;
      for (const Cell& cell : row) {
        for (const Action& action : cell) stages.insert(action.stage);
      }
      for (const int s : stages) {
        row.insert(row.begin(), Cell{{s, "UNSHARD", -1, -1}});
        if (dice_.chance(50)) row.push_back({{s, "RESHARD", -1, -1}});
        row.push_back({{s, "REDUCE_GRAD", -1, -1}});
      }
      if (!stages.empty() && ties && extra_.chance(60))
        row.push_back({{-1, "REDUCE_TIED", -1, -1}});
      if (!stages.empty() && clips) row.push_back({{-1, "REDUCE_NORM", -1, -1}});
      if (!stages.empty()) row.push_back({{-1, "OPT", -1, -1}});
    }
  }

  /// Puts OPTs and REDUCE_GRADs anywhere and names versions that exist. Replicas get equally many
  /// REDUCE_GRADs; where they stand may make them hang.
  void update_inside(Order& order) {
    std::map<int, std::set<std::size_t>> ranks_of;  // by stage
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
      for (const Cell& cell : order[rank]) {
        for (const Action& a : cell) {
          if (is_pass(a)) ranks_of[a.stage].insert(rank);
        }
      }
    }
    const bool at_the_end = dice_.chance(40);
    for (const auto& [stage, ranks] : ranks_of) {
      const Cell reduction{{stage, "REDUCE_GRAD", -1, -1}};
      const int times = dice_.chance(60) ? dice_.below(3) : 0;
      for (const std::size_t rank : ranks) {
        for (int i = 0; i < times; ++i) {
          at_the_end ? order[rank].push_back(reduction) : insert_anywhere(order[rank], reduction);
        }
      }
    }
    for (Row& row : order) {
      if (row.empty()) continue;
      for (int times = dice_.below(4); times > 0; --times)
        insert_anywhere(row, {{-1, "OPT", -1, -1}});
      if (dice_.chance(15)) insert_anywhere(row, {{-1, "REDUCE_NORM", -1, -1}});
      if (extra_.chance(15)) {
        const auto at = extra_.below(static_cast<int>(row.size()) + 1);
        row.insert(row.begin() + at, Cell{{-1, "REDUCE_TIED", -1, -1}});
      }
    }
    name_versions(order);
  }

  void insert_anywhere(Row& row, const Cell& cell) {
    row.insert(row.begin() + dice_.below(static_cast<int>(row.size()) + 1), cell);
  }

  void name_versions(Order& order) {
    for (Row& row : order) {
      std::map<std::pair<int, int>, int> named;  // by stage and micro-batch
      int updates = 0;
      for (Cell& cell : row) {
        for (Action& a : cell) {
          if (a.kind == "OPT") ++updates;
          if (!is_pass(a)) continue;
          const std::pair tensor(a.stage, a.micro_batch);
          if (a.kind == "F") named[tensor] = dice_.between(std::max(0, updates - 2), updates);
          if (a.kind != "W" || dice_.chance(50)) a.version = named[tensor];
        }
      }
    }
  }

  Dice& dice_;
  Dice extra_;  // a copy: what it decides was added later, and a seed's order stays what it was
  const RandomOptions& options_;
  int ranks_ = 0, chunks_ = 0, micro_batches_ = 0, stages_ = 0, split_ = 0, eager_backward_ = 0;
  std::string placement_name_;
  std::map<std::pair<int, int>, int> rank_of_;
  std::vector<Action> open_;
};

bool is_transfer_at(const Row& row, std::size_t i) { return i < row.size() && is_transfer(row[i]); }

/// Swaps neighbouring transfer ends, and lets some ends pass a computation.
void shuffle_transfers(Dice& dice, Order& order) {
  const int passing = dice.below(3) * 8;
  for (Row& row : order) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      const int ends = is_transfer_at(row, i) + is_transfer_at(row, i + 1);
      if (ends == 2 ? dice.chance(25) : ends == 1 && dice.chance(passing))
        std::swap(row[i], row[i + 1]);
    }
  }
}

/// Puts a wait somewhere behind some of the SENDs and REDUCE_GRADs of each rank: at once, at the
/// end, or anywhere between, which may hang.
void add_waits(Dice& dice, Order& order) {
  const int often = dice.between(10, 100), nearness = dice.below(3);
  for (Row& row : order) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].size() != 1) continue;
      const Action a = row[i][0];
      if ((!is_send(a) && a.kind != "REDUCE_GRAD") || !dice.chance(often)) continue;
      const auto left = static_cast<int>(row.size() - i);
      const int behind = nearness == 0 ? 1 : nearness == 1 ? left : dice.between(1, left);
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(i) + behind,
                 Cell{{a.stage, "WAIT_" + a.kind, a.micro_batch, -1}});
    }
  }
}

/// Writes some neighbouring transfer ends as one cell.
void write_batches(Dice& dice, Order& order) {
  const int joins = dice.between(20, 90);
  for (Row& row : order) {
    for (std::size_t i = 0; i + 1 < row.size();) {
      const bool first = is_transfer(row[i]) || is_batch(row[i]);
      if (!first || !is_transfer_at(row, i + 1) || !dice.chance(joins)) {
        ++i;
        continue;
      }
      row[i].push_back(row[i + 1][0]);
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
}

std::string break_order(Dice& dice, Order& order) {
  Row& row = order[dice.below(static_cast<int>(order.size()))];
  if (row.empty()) return "";
  const std::size_t at = dice.below(static_cast<int>(row.size()));
  const Cell cell = row[at];
  const auto place = row.begin() + static_cast<std::ptrdiff_t>(at);
  switch (dice.below(5)) {
    case 0:
      row.erase(place);
      return ", dropped " + text(cell);
    case 1:
      row.insert(row.begin() + dice.below(static_cast<int>(row.size()) + 1), cell);
      return ", doubled " + text(cell);
    case 2: {
      row.erase(place);
      Row& other = order[dice.below(static_cast<int>(order.size()))];
      other.insert(other.begin() + dice.below(static_cast<int>(other.size()) + 1), cell);
      return ", moved " + text(cell);
    }
    case 3:
      row.resize(at + 1);
      return ", cut after " + text(cell);
    default: {
      const std::size_t with = dice.below(static_cast<int>(row.size()));
      std::swap(row[at], row[with]);
      return ", swapped " + text(row[at]) + " and " + text(row[with]);
    }
  }
}

}  // namespace

RandomOrder random_order(Dice& dice, const RandomOptions& options) {
  RandomOrder result = Scheduler(dice, options).run();
  const bool broken = options.broken && dice.chance(35);
  const bool before = dice.chance(50);  // broken before or after the transfers are written
  if (broken && before) result.what += break_order(dice, result.order);
  if (options.transfers && dice.chance(60)) {
    result.order = add_communication(result.order);
    if (dice.chance(70)) {
      shuffle_transfers(dice, result.order);
      result.what += ", transfers shuffled";
    }
  }
  // From a copy, as it was added later: a seed's order stays what it was but for its waits.
  Dice of_waits = dice;
  if (options.waits && of_waits.chance(25)) {
    add_waits(of_waits, result.order);
    result.what += ", waits";
  }
  if (options.idle && dice.chance(30)) {
    for (Row& row : result.order) {
      for (int slots = dice.below(4); slots > 0; --slots) {
        row.insert(row.begin() + dice.below(static_cast<int>(row.size()) + 1), Cell{});
      }
    }
  }
  if (broken && !before) {
    for (int times = dice.between(1, 2); times > 0; --times)
      result.what += break_order(dice, result.order);
  }
  Dice of_batches = dice;  // a copy, likewise
  if (options.batches && of_batches.chance(40)) write_batches(of_batches, result.order);
  result.broken = broken;
  return result;
}

namespace {

Protocol random_protocol(Dice& dice) {
  using Credit = Protocol::Credit;
  switch (dice.below(4)) {
    case 0:
      return {Credit::Messages, dice.between(1, 3)};
    case 1:
      return {Credit::Bytes, dice.between(1, 12)};
    case 2:
      return {Credit::Unlimited, 0};
    default:
      return {};
  }
}

std::string to_string(const Protocol& protocol) {
  switch (protocol.credit) {
    case Protocol::Credit::Messages:
      return "eager:" + std::to_string(protocol.amount);
    case Protocol::Credit::Bytes:
      return "eager:" + std::to_string(protocol.amount) + "B";
    case Protocol::Credit::Unlimited:
      return "eager";
    case Protocol::Credit::None:
      break;
  }
  return "rendezvous";
}

}  // namespace

Policy random_policy(Dice& dice) {
  Policy policy;
  policy.issue =
      std::vector{Issue::Inline, Issue::Stream, Issue::Stream, Issue::Grouped}[dice.below(4)];
  policy.channel =
      std::vector{Channel::Rank, Channel::Pair, Channel::Edge, Channel::Tag}[dice.below(4)];
  policy.post = std::vector{Post::Early, Post::Deferred, Post::AtStart}[dice.below(3)];
  policy.run_order = dice.chance(30) ? RunOrder::EvenOdd : RunOrder::AsLowered;
  if (dice.chance(60)) policy.forward = random_protocol(dice);
  if (dice.chance(60)) policy.backward = random_protocol(dice);
  policy.first_use = dice.chance(15);
  policy.registered = dice.chance(10);
  if (dice.chance(15)) policy.in_flight = dice.between(1, 5);
  Dice extra = dice;  // as in random_order()
  if (extra.chance(15)) policy.channel = Channel::Direction;
  if (extra.chance(50)) policy.batches = extra.chance(50) ? Batches::Mixed : Batches::Joined;
  return policy;
}

namespace {

CollectiveTerms random_prices(Dice& dice) {
  constexpr std::int64_t kRate = 500'000'000;
  CollectiveTerms terms;
  terms.launch = dice.between(0, 9);
  terms.step = dice.between(0, 4);
  terms.part = dice.between(0, 2);
  terms.bulk = dice.between(0, 20);
  terms.bytes_per_second = dice.between(1, 4) * kRate;
  terms.per_node = dice.between(0, 4);
  terms.across_step = dice.between(0, 9);
  terms.across_bytes_per_second = dice.between(1, 4) * kRate;
  return terms;
}

std::map<std::string, std::int64_t> random_action_costs(Dice& dice, const Order& order) {
  std::map<std::string, std::int64_t> costs;
  for (const Row& row : order) {
    for (const Cell& cell : row) {
      const auto computes = [](const Action& a) {
        return a.kind == "F" || a.kind == "I" || a.kind == "W" || a.kind == "B";
      };
      if (cell.empty() || !std::all_of(cell.begin(), cell.end(), computes)) continue;
      for (const Action& a : cell) {
        if (dice.chance(30)) costs[name(a)] = dice.between(0, 20);
      }
      if (cell.size() == 2 && dice.chance(30))
        costs[name(cell[0]) + " " + name(cell[1])] = dice.between(0, 20);
    }
  }
  return costs;
}

}  // namespace

Costs random_costs(Dice& dice, const Order& order) {
  Costs costs;
  if (dice.chance(10)) return costs;
  int stages = 0;
  for (const Row& row : order) {
    for (const Cell& cell : row) {
      for (const Action& a : cell) stages = std::max(stages, a.stage + 1);
    }
  }
  const int least = dice.chance(30) ? 0 : 1;
  for (const char* kind : {"F", "I", "W"}) {
    for (int s = 0; s < stages; ++s) costs.kind_and_stage[kind][s] = dice.between(least, 9);
  }
  if (dice.chance(30)) {
    for (int s = 0; s < stages; ++s) costs.kind_and_stage["B"][s] = dice.between(least, 15);
  }
  if (dice.chance(40)) costs.kind["FB"] = dice.between(1, 15);
  costs.latency = dice.below(3) * dice.below(5);
  // By name, because a cost belongs to a producing stage and a kind.
  for (int s = 0; s < stages; ++s) {
    for (const char* kind : {"SEND_F", "SEND_B"}) {
      const int bytes = dice.between(0, 14);
      for (int m = 0; m < 8; ++m) costs.bytes[name(s, kind, m)] = bytes;
    }
  }
  if (dice.chance(50)) {
    for (int s = 0; s < stages; ++s) {
      costs.kind_and_stage["REDUCE_GRAD"][s] = dice.between(0, 20);
      costs.kind_and_stage["UNSHARD"][s] = dice.between(0, 9);
    }
  }
  if (dice.chance(50)) {
    for (int s = 0; s < stages; ++s) costs.parameter_bytes[s] = dice.between(0, 30);
  }
  Dice extra = dice;
  if (extra.chance(50)) costs.tied_bytes = extra.between(0, 30);
  if (extra.chance(30)) costs.collectives = random_prices(extra);
  if (extra.chance(30)) costs.actions = random_action_costs(extra, order);
  if (dice.chance(50)) costs.bytes_per_second = dice.between(1, 4) * std::int64_t{500'000'000};
  return costs;
}

std::string to_string(const Policy& policy) {
  static const char* const issues[] = {"inline", "stream", "grouped"};
  static const char* const channels[] = {"rank", "pair", "edge", "tag", "direction"};
  static const char* const batches[] = {"", " batches=mixed", " batches=joined"};
  static const char* const posts[] = {"early", "deferred", "at-start"};
  return std::string(issues[static_cast<int>(policy.issue)]) + " " +
         channels[static_cast<int>(policy.channel)] + " " + posts[static_cast<int>(policy.post)] +
         (policy.run_order == RunOrder::EvenOdd ? " even-odd" : "") +
         " SEND_F=" + to_string(policy.forward) + " SEND_B=" + to_string(policy.backward) +
         (policy.first_use ? " connect=first-use" : "") +
         (policy.registered ? " buffers=registered" : "") +
         (policy.in_flight > 0 ? " in_flight=" + std::to_string(policy.in_flight) : "") +
         batches[static_cast<int>(policy.batches)] +
         (policy.device_queues > 0 ? " device_queues=" + std::to_string(policy.device_queues) : "");
}

}  // namespace pipewright::reference
