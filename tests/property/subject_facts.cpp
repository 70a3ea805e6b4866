#include "tests/property/subject_facts.hpp"

#include "core/costs/action_times.hpp"

namespace pipewright::tests {
namespace {

std::string text(Nanoseconds time) { return std::to_string(time.value); }
std::string text(Bytes bytes) { return std::to_string(bytes.value); }

void put_stages(Facts& facts, const CostTable& costs) {
  facts["stages"] = std::to_string(costs.stages.size());
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCosts& each = costs.stages[s];
    const std::string at = "costs." + std::to_string(s) + ".";
    facts[at + "F"] = text(each.f);
    facts[at + "I"] = text(each.i);
    facts[at + "W"] = text(each.w);
    facts[at + "B"] = text(each.b);
    facts[at + "OPT"] = text(each.opt);
    facts[at + "reduce"] = text(each.reduce);
    facts[at + "unshard"] = text(each.unshard);
  }
  for (std::size_t s = 0; s < costs.memory.size(); ++s) {
    const StageMemory& each = costs.memory[s];
    const std::string at = "memory." + std::to_string(s) + ".";
    facts[at + "F"] = text(each.f);
    facts[at + "I"] = text(each.i);
    facts[at + "W"] = text(each.w);
    facts[at + "constant"] = text(each.constant);
    facts[at + "version"] = text(each.version);
    facts[at + "within"] =
        text(each.in_f) + " " + text(each.in_i) + " " + text(each.in_w) + " " + text(each.in_b);
  }
}

void put_route(Facts& facts, const std::string& name, const RouteCosts& route) {
  facts["route." + name + ".latency"] = text(route.latency);
  facts["route." + name + ".bandwidth"] = std::to_string(route.bytes_per_second);
  std::string links;
  for (const auto link : route.links) links += std::to_string(link) + " ";
  facts["route." + name + ".links"] = links;
}

void put_costs(Facts& facts, const CostTable& costs) {
  put_stages(facts, costs);
  const auto list = [&](const std::string& name, const std::vector<Bytes>& bytes) {
    for (std::size_t k = 0; k < bytes.size(); ++k)
      facts[name + "." + std::to_string(k)] = text(bytes[k]);
  };
  list("activation", costs.activation_bytes);
  list("gradient", costs.gradient_bytes);
  list("parameter", costs.parameter_bytes);
  facts["tied"] = text(costs.tied_bytes);
  facts["pair"] = text(costs.overlapped_pair);
  if (costs.actions != nullptr) facts["actions"] = write_action_times_csv(costs.actions->rows());
  put_route(facts, "every", costs.every_route);
  for (std::size_t e = 0; e < costs.route_of_edge.size(); ++e)
    put_route(facts, std::to_string(e), costs.route_of_edge[e]);
  for (std::size_t k = 0; k < costs.links.size(); ++k) {
    const Link& link = costs.links[k];
    facts["link." + std::to_string(k)] = link.name + " " + std::to_string(link.bytes_per_second) +
                                         " " + std::to_string(static_cast<int>(link.sharing));
  }
}

void draw_costs(CostTable& costs, test::Draw& draw) {
  const auto time = [&] { return Nanoseconds(1 + draw.below(1'000'000)); };
  const auto bytes = [&] { return Bytes(1 + draw.below(1'000'000)); };
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    StageCosts& each = costs.stages[s];
    each = {.f = time(), .i = time(), .w = time(), .opt = time()};
    each.b = draw.coin() ? each.i + each.w : time();
    StageMemory memory{.f = bytes(), .i = Bytes(-draw.below(1000)), .constant = bytes()};
    memory.w = draw.coin() ? Bytes(-memory.f.value - memory.i.value) : Bytes(-1);
    memory.in_b = draw.coin() ? bytes() : Bytes(0);
    costs.memory.push_back(memory);
  }
  for (std::size_t s = 0; s + 1 < costs.stages.size(); ++s) {
    costs.activation_bytes.push_back(bytes());
    costs.gradient_bytes.push_back(bytes());
  }
  if (draw.coin()) costs.overlapped_pair = time();
}

CommPolicy draw_policy(test::Draw& draw) {
  const auto& presets = comm_policy_presets();
  CommPolicy policy =
      presets[static_cast<std::size_t>(draw.below(static_cast<int>(presets.size())))].policy;
  if (draw.coin()) policy.send_b = {.kind = Protocol::Kind::EagerMessages, .credit = 3};
  if (draw.coin()) policy.buffers = Buffers::Registered;
  if (draw.coin()) policy.connect = Connect::FirstUse;
  if (draw.below(3) == 0) policy.batches = Batches::Mixed;
  if (policy.issue == Issue::Stream && draw.coin()) policy.in_flight = 5;
  if (draw.below(3) == 0) policy.device_queues = 2;
  return policy;
}

}  // namespace

Facts facts_of(const tools::Subject& subject) {
  Facts facts;
  put_costs(facts, subject.costs);
  put_policy(facts, subject.program.policy);
  facts["limit"] = text(subject.memory_limit);
  facts["order"] = write_order_csv(subject.order);
  facts["lowering"] =
      std::to_string(subject.lowering.fragment) + std::to_string(subject.lowering.optimizer) +
      std::to_string(subject.lowering.clips) + std::to_string(subject.lowering.sharded);
  std::string problems;
  for (const std::string& problem : subject.problems) problems += problem + "\n";
  facts["problems"] = problems;
  return facts;
}

void put_policy(Facts& facts, const CommPolicy& policy) {
  facts["policy.issue"] = to_string(policy.issue);
  facts["policy.channel"] = to_string(policy.channel);
  facts["policy.post"] = to_string(policy.post);
  facts["policy.run_order"] = to_string(policy.run_order);
  facts["policy.connect"] = to_string(policy.connect);
  facts["policy.buffers"] = to_string(policy.buffers);
  facts["policy.send_f"] = to_string(policy.send_f);
  facts["policy.send_b"] = to_string(policy.send_b);
  facts["policy.batches"] = to_string(policy.batches);
  facts["policy.in_flight"] = std::to_string(policy.in_flight);
  facts["policy.device_queues"] = std::to_string(policy.device_queues);
}

std::string difference(const Facts& expected, const Facts& found) {
  std::string lines;
  const auto value = [](const Facts& facts, const std::string& key) {
    const auto at = facts.find(key);
    return at == facts.end() ? std::string("nothing") : at->second;
  };
  Facts both = expected;
  both.insert(found.begin(), found.end());
  for (const auto& [key, unused] : both) {
    const std::string wanted = value(expected, key), got = value(found, key);
    if (wanted != got) lines += key + ": expected " + wanted + ", found " + got + "\n";
  }
  return lines;
}

Plan random_plan(test::Draw& draw) {
  const int ranks = 2 + draw.below(3), replicas = 1 + draw.below(2);
  const Json model = {
      {"schema", "pipewright.model/1"},
      {"name", "gpt"},
      {"transformer",
       {{"hidden", 64}, {"layers", ranks}, {"heads", 4}, {"vocabulary", 512}, {"sequence", 32}}}};
  Plan plan;
  plan.model = read_model(JsonCursor(model, "model.json"));
  plan.cluster = cluster_preset("local-cpu", ranks * replicas);
  plan.mesh = Mesh::data_parallel(replicas, ranks);
  plan.micro_batches = ranks + draw.below(4);
  plan.schedule.name = draw.one_of("1f1b", "gpipe", "zb-h1");
  for (int s = 0, layer = 0; s < ranks; ++s) {
    // The embedding before the first block, the head behind the last one.
    const int end = layer + 1 + (s == 0 ? 1 : 0) + (s + 1 == ranks ? 1 : 0);
    plan.stages.push_back({.first_layer = layer, .end_layer = end, .rank = RankId(s)});
    layer = end;
  }
  plan.costs = CostTable::uniform(ranks, {});
  draw_costs(plan.costs, draw);
  set_routes(plan.costs, plan.cluster, plan.mesh.devices_of_replicas());
  plan.policy = draw_policy(draw);
  return plan;
}

}  // namespace pipewright::tests
