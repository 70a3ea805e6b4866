#include "tests/property/two_readings.hpp"

#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "core/costs/action_times.hpp"
#include "core/costs/collective_model.hpp"
#include "core/costs/costs.hpp"
#include "core/order/order.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "core/program/program.hpp"
#include "core/program/wait_for.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/engine.hpp"
#include "tests/reference/interpreter.hpp"
#include "tests/reference/random_calls.hpp"
#include "tests/reference/random_order.hpp"
#include "tests/reference/random_parts.hpp"
#include "tests/reference/random_sharding.hpp"

namespace pipewright::tests {
namespace {

Protocol translated(const reference::Protocol& p) {
  using Credit = reference::Protocol::Credit;
  switch (p.credit) {
    case Credit::Messages:
      return {Protocol::Kind::EagerMessages, p.amount};
    case Credit::Bytes:
      return {Protocol::Kind::EagerBytes, p.amount};
    case Credit::Unlimited:
      return {Protocol::Kind::EagerUnlimited, 0};
    case Credit::None:
      break;
  }
  return {};
}

CommPolicy translated(const reference::Policy& p) {
  CommPolicy policy;
  policy.issue = std::map<reference::Issue, Issue>{{reference::Issue::Inline, Issue::Inline},
                                                   {reference::Issue::Stream, Issue::Stream},
                                                   {reference::Issue::Grouped, Issue::Grouped}}
                     .at(p.issue);
  policy.channel =
      std::map<reference::Channel, Channel>{{reference::Channel::Rank, Channel::Rank},
                                            {reference::Channel::Pair, Channel::Pair},
                                            {reference::Channel::Edge, Channel::Edge},
                                            {reference::Channel::Tag, Channel::Tag},
                                            {reference::Channel::Direction, Channel::Direction}}
          .at(p.channel);
  policy.post = std::map<reference::Post, Post>{{reference::Post::Early, Post::Early},
                                                {reference::Post::Deferred, Post::Deferred},
                                                {reference::Post::AtStart, Post::AtStart}}
                    .at(p.post);
  policy.run_order =
      p.run_order == reference::RunOrder::EvenOdd ? RunOrder::EvenOdd : RunOrder::AsLowered;
  policy.send_f = translated(p.forward);
  policy.send_b = translated(p.backward);
  policy.connect = p.first_use ? Connect::FirstUse : Connect::Ready;
  policy.buffers = p.registered ? Buffers::Registered : Buffers::Plain;
  policy.in_flight = p.in_flight;
  policy.device_queues = p.device_queues;
  policy.batches =
      std::map<reference::Batches, Batches>{{reference::Batches::Apart, Batches::Apart},
                                            {reference::Batches::Mixed, Batches::Mixed},
                                            {reference::Batches::Joined, Batches::Joined}}
          .at(p.batches);
  return policy;
}

std::int64_t value(const std::map<std::string, std::int64_t>& map, const std::string& key,
                   std::int64_t otherwise = 0) {
  const auto found = map.find(key);
  return found == map.end() ? otherwise : found->second;
}

std::shared_ptr<const CollectivePrices> translated(const reference::CollectiveTerms& terms,
                                                   int devices_of_rank) {
  constexpr int kOneNode = 1 << 30;
  CollectivePrices prices;
  prices.model = {.launch_ns = static_cast<double>(terms.launch),
                  .step_ns = static_cast<double>(terms.step),
                  .part_ns_per_byte = static_cast<double>(terms.part),
                  .bulk_ns = static_cast<double>(terms.bulk),
                  .bytes_per_second = static_cast<double>(terms.bytes_per_second),
                  .across_step_ns = static_cast<double>(terms.across_step),
                  .across_bytes_per_second = static_cast<double>(terms.across_bytes_per_second)};
  constexpr int kRanks = 256;  // more than any case has
  prices.devices_per_node = terms.per_node > 0 ? static_cast<int>(terms.per_node) : kOneNode;
  for (int rank = 0; rank < kRanks; ++rank) prices.device_of_rank.push_back(rank * devices_of_rank);
  return std::make_shared<const CollectivePrices>(prices);
}

/// The reference knows an action by its name alone, whatever its rank.
std::shared_ptr<const ActionTimes> translated(const std::map<std::string, std::int64_t>& actions,
                                              const Order& order) {
  std::vector<ActionTime> rows;
  for (const auto& [name, time] : actions) {
    const auto space = name.find(' ');
    const std::string text = space == name.npos ? name
                                                : "(" + name.substr(0, space) + ";" +
                                                      name.substr(space + 1) + ")OVERLAP_F_B";
    rows.push_back({.action = parse_timed_action(text).value(), .time = Nanoseconds(time)});
  }
  return std::make_shared<ActionTimes>(std::move(rows),
                                       ReplicaShape{1, order.rank_count(), order.micro_batches});
}

CostTable translated(const reference::Costs& costs, const Order& order) {
  const int stages = order.stages();
  const auto of_stage = [&](const std::string& kind, int s, std::int64_t otherwise) {
    const auto by_stage = costs.kind_and_stage.find(kind);
    if (by_stage != costs.kind_and_stage.end() && by_stage->second.count(s))
      return by_stage->second.at(s);
    return value(costs.kind, kind, otherwise);
  };
  CostTable table;
  table.tied_bytes = Bytes(costs.tied_bytes);
  if (!costs.parameter_bytes.empty()) table.parameter_bytes.resize(stages);
  for (const auto& [s, bytes] : costs.parameter_bytes) {
    if (s < stages) table.parameter_bytes[s] = Bytes(bytes);
  }
  for (int s = 0; s < stages; ++s) {
    StageCosts stage;
    stage.f = Nanoseconds(of_stage("F", s, 0));
    stage.i = Nanoseconds(of_stage("I", s, 0));
    stage.w = Nanoseconds(of_stage("W", s, 0));
    stage.b = Nanoseconds(of_stage("B", s, stage.i.value + stage.w.value));
    stage.opt = Nanoseconds(of_stage("OPT", s, 0));
    stage.reduce = Nanoseconds(of_stage("REDUCE_GRAD", s, 0));
    stage.unshard = Nanoseconds(of_stage("UNSHARD", s, 0));
    table.stages.push_back(stage);
    if (s + 1 == stages) break;
    const auto bytes = [&](int from, const char* kind) {
      return Bytes(value(costs.bytes, reference::name(from, kind, 0), value(costs.bytes, kind)));
    };
    table.activation_bytes.push_back(bytes(s, "SEND_F"));
    table.gradient_bytes.push_back(bytes(s + 1, "SEND_B"));
  }
  if (!costs.actions.empty()) table.actions = translated(costs.actions, order);
  table.overlapped_pair = Nanoseconds(value(costs.kind, "FB"));
  table.every_route.latency = Nanoseconds(costs.latency);
  table.every_route.bytes_per_second = static_cast<double>(costs.bytes_per_second.value_or(0));
  if (costs.collectives)
    table.collectives = translated(*costs.collectives, devices_of_rank(order.mesh));
  return table;
}

// Both answers are written in one form, a line a fact, and compared as text.

}  // namespace

Order order_of(const Case& c) {
  return read_order_csv(reference::to_csv(c.order, c.heading), "random");
}

Program program_of(const Case& c) {
  return lower(order_of(c), translated(c.policy), {.fragment = c.fragment});
}

CostTable costs_of(const Case& c) { return translated(c.costs, order_of(c)); }

std::string of_library(const Case& c) {
  std::ostringstream out;
  const Order order = order_of(c);
  const Program program = program_of(c);
  for (int rank = 0; rank < program.ranks(); ++rank) {
    out << "list " << rank << ":";
    for (InstructionId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id)
      out << " " << program.text(id);
    out << "\n";
  }
  const std::string lists = contradicts_itself(c.order) ? "" : out.str();
  if (!c.fragment && !problems_of(order).empty())
    return lists + "verdict invalid, before it is run\n";
  const CostTable costs = translated(c.costs, order);
  const sim::Result result = sim::simulate(program, costs);
  const WaitReport report = sim::check(program, costs);
  out << "verdict " << to_string(report.verdict) << (result.finished ? ", finished" : "") << "\n";
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const Timeline& t = result.timeline;
    out << program.rank_of(id).value << " " << program.text(id);
    if (t.end[id] == kNotEnded) {
      out << " never ends\n";
      continue;
    }
    if (!is_recv(program.code[id].kind)) out << " moves " << t.moving[id];
    out << " ends " << t.end[id] << "\n";
  }
  for (const StuckHead& head : report.stuck)
    out << "head " << head.rank.value << "/" << head.lane << " " << program.text(head.instruction)
        << "\n";
  for (const WaitStep& step : report.cycle) {
    out << "cycle " << step.rank.value << " " << program.text(step.instruction) << " waits for "
        << program.text(step.waits_for) << " behind " << program.text(step.behind) << "\n";
  }
  for (const WaitStep& step : report.cause) {
    out << "cause " << step.rank.value << " " << program.text(step.instruction) << " waits for "
        << program.text(step.waits_for)
        << (step.through == kNoInstruction ? "" : " through " + program.text(step.through))
        << " behind " << program.text(step.behind) << "\n";
  }
  if (report.verdict == Verdict::Mismatch) {
    out << "met " << program.text(report.mismatched_recv) << " "
        << program.text(report.mismatched_send) << "\n";
  }
  if (!result.finished) return out.str();
  const Figures figures = figures_of(program, result.timeline, costs);
  out << "makespan " << figures.makespan_ns << " bubble " << figures.bubble_ratio << " of the span "
      << figures.span_bubble_ratio << "\n";
  for (const RankFigures& rank : figures.ranks)
    out << "busy " << rank.busy_ns << " span " << rank.span_ns << " peak " << rank.peak_activations
        << "\n";
  return out.str();
}

std::string of_reference(const Case& c) {
  std::ostringstream out;
  const reference::Result result =
      reference::interpret(reference::to_csv(c.order, c.heading), c.policy, c.costs, c.fragment);
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    out << "list " << rank << ":";
    for (const reference::Timed& timed : result.ranks[rank].instructions)
      out << " " << timed.instruction;
    out << "\n";
  }
  const std::string lists = contradicts_itself(c.order) ? "" : out.str();
  if (!result.complaint.empty()) return lists + "verdict invalid, before it is run\n";
  const bool finished = result.verdict == reference::Verdict::Ok;
  out << "verdict " << to_string(result.verdict) << (finished ? ", finished" : "") << "\n";
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    for (const reference::Timed& timed : result.ranks[rank].instructions) {
      out << rank << " " << timed.instruction;
      if (!timed.end) {
        out << " never ends\n";
        continue;
      }
      if (timed.instruction.find("RECV") == std::string::npos) out << " moves " << *timed.start;
      out << " ends " << *timed.end << "\n";
    }
  }
  for (const reference::Head& head : result.stuck)
    out << "head " << head.rank << "/" << head.lane << " " << head.instruction << "\n";
  for (const reference::CycleElement& e : result.cycle) {
    out << "cycle " << e.rank << " " << e.instruction << " waits for " << e.waits_for << " behind "
        << e.behind << "\n";
  }
  for (const reference::CauseElement& e : result.cause) {
    out << "cause " << e.rank << " " << e.instruction << " waits for " << e.waits_for
        << (e.through.empty() ? "" : " through " + e.through) << " behind " << e.behind << "\n";
  }
  if (!result.mismatches.empty())
    out << "met " << result.mismatches[0].recv << " " << result.mismatches[0].send << "\n";
  if (!finished) return out.str();
  out << "makespan " << result.makespan << " bubble " << result.bubble_ratio << " of the span "
      << result.span_bubble_ratio << "\n";
  for (const reference::RankResult& rank : result.ranks)
    out << "busy " << rank.busy << " span " << rank.span << " peak " << rank.peak_activations
        << "\n";
  return out.str();
}

bool contradicts_itself(const reference::Order& order) {
  std::map<std::string, int> seen;
  std::map<std::pair<int, int>, std::size_t> rank_of;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    for (const reference::Cell& cell : order[rank]) {
      for (const reference::Action& a : cell) {
        if (a.micro_batch < 0) continue;
        std::string called = reference::name(a);
        if (a.kind == "I") called = reference::name(a.stage, "B", a.micro_batch);
        if (++seen[called] > 1 ||
            rank_of.emplace(std::pair(a.stage, a.micro_batch), rank).first->second != rank)
          return true;
      }
    }
  }
  return false;
}

void add_calls_to_some(reference::Dice dice, Case& c) {
  if (!dice.chance(40)) return;
  if (dice.chance(50)) {
    c.order.assign(static_cast<std::size_t>(dice.between(2, 5)), {});
    c.costs.kind_and_stage.clear();
    c.costs.parameter_bytes.clear();
  }
  c.heading.groups = reference::add_calls(dice, c.order);
  if (dice.chance(60)) c.policy.device_queues = dice.between(1, 3);
}

void add_parts_to_some(reference::Dice dice, Case& c) {
  if (dice.chance(60)) return;
  reference::add_parts(dice, c.order, c.heading);
  // Ranks that are devices, where they are whole blocks of them.
  const int ranks = static_cast<int>(c.order.size());
  if (ranks % reference::devices_of_rank(c.heading.mesh) == 0 && dice.chance(60))
    std::swap(c.heading.mesh, c.heading.devices);
  if (loses_a_rank(c)) c.heading.devices.clear();
  if (dice.chance(30)) c.policy.device_queues = dice.between(1, 3);
}

void add_sharding_to_some(reference::Dice dice, Case& c) {
  if (dice.chance(75) || reference::is_asynchronous(c.order)) return;
  reference::add_sharding(dice, c.order, c.heading);
}

void drop_idle_parts(Case& c) {
  std::set<std::string> computed;
  for (const reference::Row& row : c.order) {
    for (const reference::Cell& cell : row) {
      for (const reference::Action& a : cell) computed.insert(std::to_string(a.stage) + a.kind);
    }
  }
  std::erase_if(c.heading.parts, [&](const auto& one) { return computed.count(one.first) == 0; });
}

bool loses_a_rank(const Case& c) {
  bool calls = false, loses = false;
  for (const reference::Row& row : c.order) {
    bool acts = false;
    for (const reference::Cell& cell : row) {
      acts |= !cell.empty();
      for (const reference::Action& a : cell) calls |= reference::is_call(a);
    }
    loses |= !acts;
  }
  const int block = reference::devices_of_rank(c.heading.devices);
  if (static_cast<int>(c.order.size()) % block != 0) return true;
  return (calls || block > 1) && loses;
}

std::string shown(const Case& c) {
  std::ostringstream out;
  out << to_string(c.policy) << (c.fragment ? " fragment" : "") << "\n"
      << reference::to_csv(c.order, c.heading) << "costs:";
  for (const auto& [kind, cost] : c.costs.kind) out << " " << kind << "=" << cost;
  for (const auto& [kind, stages] : c.costs.kind_and_stage) {
    for (const auto& [stage, cost] : stages) out << " " << stage << kind << "=" << cost;
  }
  for (const auto& [action, cost] : c.costs.actions) out << " " << action << "=" << cost;
  out << " latency=" << c.costs.latency << " bytes/s=" << c.costs.bytes_per_second.value_or(0);
  for (const auto& [send, bytes] : c.costs.bytes) {
    if (send.back() == '0') out << " " << send << ":" << bytes << "B";
  }
  return out.str() + "\n";
}

}  // namespace pipewright::tests
