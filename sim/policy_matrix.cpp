#include "sim/policy_matrix.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "sim/engine.hpp"

namespace pipewright::sim {
namespace {

constexpr Protocol kRendezvous{};
constexpr Protocol kOneMessage{Protocol::Kind::EagerMessages, 1};
constexpr Protocol kUnlimited{Protocol::Kind::EagerUnlimited, 0};
constexpr std::array<Protocol, 3> kProtocols = {kRendezvous, kOneMessage, kUnlimited};

/// A verdict depends on message sizes alone; shared links would only slow the engine down.
CostTable without_links(CostTable costs) {
  costs.links.clear();
  costs.route_of_edge.clear();
  costs.every_route = {};
  return costs;
}

/// The fields that lowering looks at, for every combination.
std::vector<CommPolicy> lowered_policies() {
  std::vector<CommPolicy> policies;
  const auto add = [&](Issue issue, Channel channel, std::initializer_list<Post> posts) {
    for (const Post post : posts) {
      policies.push_back({.issue = issue, .channel = channel, .post = post});
    }
  };
  add(Issue::Inline, Channel::Edge, {Post::Early, Post::Deferred});
  for (const Channel channel :
       {Channel::Rank, Channel::Direction, Channel::Pair, Channel::Edge, Channel::Tag}) {
    add(Issue::Stream, channel, {Post::Early, Post::Deferred, Post::AtStart});
  }
  add(Issue::Grouped, Channel::Edge, {Post::Early, Post::Deferred});
  return policies;
}

/// The most messages and bytes that the sends of one directed edge and kind carry together: credit
/// for so much is as good as unlimited.
struct Heaviest {
  std::int64_t messages = 0, bytes = 0;
  bool sizes_known = true;
};

Heaviest heaviest_account(const Program& program, const std::vector<std::int64_t>& message_bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  std::vector<std::int64_t> sends_of_route(program.routes.size(), 0);
  for (const Instruction& in : program.code) {
    if (is_send(in.kind)) ++sends_of_route[in.route];
  }
  std::map<std::array<std::int32_t, 3>, std::pair<std::int64_t, std::int64_t>> accounts;
  Heaviest heaviest;
  for (std::size_t r = 0; r < program.routes.size(); ++r) {
    if (sends_of_route[r] == 0) continue;
    const Route& route = program.routes[r];
    auto& [messages, bytes] = accounts[{static_cast<std::int32_t>(route.send_kind),
                                        route.source.value, route.destination.value}];
    const std::int64_t each = message_bytes.empty() ? 0 : message_bytes[r];
    heaviest.sizes_known = heaviest.sizes_known && each > 0;
    messages += sends_of_route[r];
    bytes = each > (kMost - bytes) / sends_of_route[r] ? kMost : bytes + each * sends_of_route[r];
    heaviest.messages = std::max(heaviest.messages, messages);
    heaviest.bytes = std::max(heaviest.bytes, bytes);
  }
  return heaviest;
}

/// The least credit of the kind in (0, enough] with which the Program ends; it ends with `enough`
/// and not with a rendezvous.
template <class Ends>
std::int64_t least_of(Protocol::Kind kind, std::int64_t enough, Ends ends) {
  std::int64_t fails = 0;
  while (enough - fails > 1) {
    const std::int64_t middle = fails + (enough - fails) / 2;
    (ends({kind, middle}) ? enough : fails) = middle;
  }
  return enough;
}

}  // namespace

std::vector<PolicyVerdict> policy_matrix(const Order& order, const LowerOptions& options,
                                         const CostTable& costs) {
  const CostTable sizes = without_links(costs);
  std::vector<PolicyVerdict> verdicts;
  for (const CommPolicyPreset& preset : comm_policy_presets()) {
    const Program program = lower(order, preset.policy, options);
    verdicts.push_back({preset.name, preset.policy, check(program, sizes).verdict});
  }
  for (const CommPolicy& policy : lowered_policies()) {
    Program program = lower(order, policy, options);
    for (const Protocol& protocol : kProtocols) {
      program.policy.send_f = program.policy.send_b = protocol;
      verdicts.push_back({"", program.policy, check(program, sizes).verdict});
    }
  }
  return verdicts;
}

LeastCredit least_credit(const Program& original, const CostTable& costs) {
  const CostTable sizes = without_links(costs);
  Program program = original;
  const auto ends = [&](const Protocol& protocol) {
    program.policy.send_f = program.policy.send_b = protocol;
    return simulate(program, sizes).finished;
  };
  const Heaviest most = heaviest_account(program, sizes.message_bytes(program));
  LeastCredit least;
  least.sizes_known = most.sizes_known;
  if (ends(kRendezvous)) {
    least.messages = 0;
    if (most.sizes_known) least.bytes = 0;
    return least;
  }
  if (!ends(kUnlimited)) return least;
  least.messages = least_of(Protocol::Kind::EagerMessages, most.messages, ends);
  if (most.sizes_known) least.bytes = least_of(Protocol::Kind::EagerBytes, most.bytes, ends);
  return least;
}

}  // namespace pipewright::sim
