// The flags that name a schedule, its costs and its policy, and what they mean.
#include <algorithm>
#include <limits>

#include "core/base/error.hpp"
#include "core/cluster/collectives.hpp"
#include "core/costs/action_times.hpp"
#include "core/costs/cost_text.hpp"
#include "core/order/comm_policy.hpp"
#include "planner/schedules/requested.hpp"
#include "planner/synthesis/auto_schedule.hpp"
#include "tools/input/named_cluster.hpp"
#include "tools/input/subject.hpp"
#include "tools/input/synthesis.hpp"

namespace pipewright::tools {
namespace {

constexpr std::string_view kRead = "What to read";
constexpr std::string_view kCosts = "Costs";
constexpr std::string_view kPolicy = "Communication";

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& schedule : planner::schedules()) names.emplace_back(schedule.name);
  return names;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const std::string_view name : comm_policy_names()) names.emplace_back(name);
  return names;
}

void add_parameter(planner::ScheduleRequest& request, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos || equals + 1 == text.size()) {
    throw InputError("--param: expected KEY=VALUE, found \"" + text + "\"");
  }
  request.parameters[text.substr(0, equals)] = text.substr(equals + 1);
}

/// "X" for both kinds, or "X,Y" for activations and gradients.
void set_protocols(CommPolicy& policy, const std::string& text) {
  const std::size_t comma = text.find(',');
  policy.send_f = parse_protocol(text.substr(0, comma));
  policy.send_b = comma == text.npos ? policy.send_f : parse_protocol(text.substr(comma + 1));
}

/// One of two flags that say the same, of a stage and of a rank.
struct GivenFlag {
  std::string name;
  std::optional<std::string> text;
  bool by_rank = false;
};

GivenFlag given_flag(const Arguments& arguments, const char* of_stage, const char* of_rank,
                     CostsOf whose) {
  if (arguments.has(of_stage) && arguments.has(of_rank)) {
    throw InputError(std::string(of_stage) + " and " + of_rank +
                     " say the same, of a stage and of a rank; give one of them");
  }
  if (arguments.has(of_rank)) return {of_rank, arguments.text(of_rank), true};
  return {of_stage, arguments.text(of_stage), whose == CostsOf::Ranks};
}

/// Costs that mean as much with any number of stages: of ranks, or one value for each of --pp.
bool names_costs_of_ranks(const Arguments& arguments) {
  return arguments.has("--rank-cost") ||
         arguments.text_or("--cost", "").find(':') != std::string::npos;
}

/// What numbers of micro-batches hold. How many a schedule can have is the registry's to say, or
/// the steady state's.
constexpr std::int64_t kMostMicroBatches = std::numeric_limits<std::int32_t>::max();

/// --message-bytes, if given: the size of every activation and gradient.
void use_message_bytes(CostTable& costs, const Arguments& arguments) {
  if (const auto text = arguments.text("--message-bytes"))
    set_message_bytes(*text, costs, "--message-bytes");
}

}  // namespace

Positional subject_file() {
  return {.name = "FILE",
          .help =
              "a plan.json, a job.json whose tuner_load_path names a plan, or an order: a CSV "
              "(PyTorch's grammar, a row a rank) or an order.json; - for standard input"};
}

std::vector<Flag> schedule_flags() {
  std::vector<Flag> flags = {
      {.group = kRead,
       .name = "--pp",
       .argument = "P",
       .help = "ranks of the pipeline",
       .short_name = 'p'},
      {.group = kRead,
       .name = "--micro-batches",
       .argument = "M",
       .help = "micro-batches of a step",
       .short_name = 'm'},
      {.group = kRead,
       .name = "--vpp",
       .argument = "V",
       .help = "stages a rank, where the schedule has several",
       .short_name = 'v'},
      {.group = kRead,
       .name = "--param",
       .argument = "KEY=VALUE",
       .help = "a parameter of the schedule, such as group=4; may be repeated",
       .repeatable = true},
      {.group = kRead,
       .name = "--jobs",
       .argument = "HOW",
       .help = "short for --param jobs=HOW: Paddle's job lists before and after its fix",
       .choices = {"fused", "split"},
       .checked = true},
  };
  for (auto& flag : synthesis_flags()) flags.push_back(std::move(flag));
  return flags;
}

std::vector<Flag> cost_flags() {
  return {
      {.group = kCosts,
       .name = "--cost",
       .argument = "COSTS",
       .help =
           "F=1ms,I=1ms,W=1ms,B=..,FB=..,OPT=..,comm=..: whole ns or a unit, for all stages or one "
           "for each (F=1ms:2ms:1ms:1ms); B is I+W unless given, FB an overlapped pair, comm a "
           "latency; what is not named stays: the plan's, else F=1ms,I=1ms,W=1ms"},
      {.group = kCosts,
       .name = "--mem",
       .argument = "BYTES",
       .help = "F=..,I=..,W=..,constant=..,version=..,limit=..: change of a stage's memory at each "
               "action, what is always there, what an older version of its weights takes while it "
               "is kept, and the most a rank may hold; all but the limit also one value for each "
               "stage; what is not named stays as the plan has it"},
      {.group = kCosts,
       .name = "--rank-cost",
       .argument = "COSTS",
       .help =
           "instead of --cost: what a rank does for one micro-batch, for all ranks or one value "
           "for each; with several stages a rank it is cut into them"},
      {.group = kCosts,
       .name = "--rank-mem",
       .argument = "BYTES",
       .help = "instead of --mem: what a rank holds of one micro-batch; with several stages a rank "
               "it is cut into them"},
      {.group = kCosts,
       .name = "--message-bytes",
       .argument = "BYTES",
       .help = "size of every activation and gradient that is sent, instead of a plan's own; "
               "eager protocols count it"},
      {.group = kCosts,
       .name = "--collectives",
       .argument = "CLUSTER",
       .help = "prices of collectives: those of a cluster.json with a section \"collectives\", the "
               "ranks on its devices in order; a plan has its cluster's",
       .is_file = true},
  };
}

Flag action_times_flag() {
  return {.group = kCosts,
          .name = "--costs",
          .argument = "FILE",
          .help =
              "times of single actions, of which any may be left out: a CSV with the head "
              "replica,rank,action,ns; replicas, their ranks and their micro-batches count "
              "from 0; the other actions take what their stage does",
          .is_file = true};
}

std::vector<Flag> policy_flags() {
  return {
      {.group = kPolicy,
       .name = "--preset",
       .argument = "NAME",
       .help = "a communication policy by name",
       .choices = preset_names(),
       .checked = true},
      {.group = kPolicy,
       .name = "--issue",
       .argument = "HOW",
       .help = "inline: a transfer occupies the compute lane; stream: it waits in a queue of its "
               "own; grouped: neighbours start and end together",
       .choices = {"inline", "stream", "grouped"},
       .checked = true},
      {.group = kPolicy,
       .name = "--channel",
       .argument = "QUEUE",
       .help = "which transfers of a rank wait in one line, under --issue stream",
       .choices = {"rank", "pair", "edge", "tag", "direction"},
       .checked = true},
      {.group = kPolicy,
       .name = "--protocol",
       .argument = "KIND",
       .help = "rendezvous, eager, eager:2 (messages), eager:4096B (bytes); two with a comma: "
               "activations, gradients"},
      {.group = kPolicy,
       .name = "--post",
       .argument = "WHEN",
       .help = "where receives are posted",
       .choices = {"early", "deferred", "at-start"},
       .checked = true},
      {.group = kPolicy,
       .name = "--run-order",
       .argument = "ORDER",
       .help = "order of neighbouring transfers",
       .choices = {"as-lowered", "even-odd"},
       .checked = true},
      {.group = kPolicy,
       .name = "--connect",
       .argument = "WHEN",
       .help = "ready, or first-use: the first transfer between two ranks makes their connection, "
               "which holds up the hosts of both",
       .choices = {"ready", "first-use"},
       .checked = true},
      {.group = kPolicy,
       .name = "--buffers",
       .argument = "KIND",
       .help = "plain, or registered (also captured in a graph): every send meets its receive, "
               "whatever --protocol says",
       .choices = {"plain", "registered"},
       .checked = true},
      {.group = kPolicy,
       .name = "--in-flight",
       .argument = "N",
       .help = "the most transfers that a rank may have issued and not ended, under --issue "
               "stream; 0: no limit"},
      {.group = kPolicy,
       .name = "--batches",
       .argument = "HOW",
       .help = "what a cell (0SEND_F0;2RECV_F0)BATCH_P2P is: apart, its transfers one by one; "
               "joined, one operation; mixed, one only if it both sends and receives",
       .choices = {"apart", "mixed", "joined"},
       .checked = true},
      {.group = kPolicy,
       .name = "--device-queues",
       .argument = "N",
       .help = "how many queues of a device the calls of an order share, such as ALL_REDUCE(tp:0); "
               "0: each stream or group has its own"},
  };
}

std::vector<Flag> subject_flags() {
  std::vector<Flag> flags = {{.group = kRead,
                              .name = "--schedule",
                              .argument = "NAME",
                              .help = "a schedule of the registry instead of FILE; needs --pp and "
                                      "--micro-batches",
                              .short_name = 's',
                              .choices = schedule_names()}};
  for (auto& flag : schedule_flags()) flags.push_back(std::move(flag));
  flags.push_back({.group = kRead,
                   .name = "--dp",
                   .argument = "N",
                   .help = "replicas of a schedule's or an order's ranks, each with micro-batches "
                           "of its own; a plan has its own"});
  flags.push_back({.group = kRead,
                   .name = "--fragment",
                   .help = "the order is a part, such as a log cut out of a hang: no complaint "
                           "about what is missing"});
  for (auto& flag : cost_flags()) flags.push_back(std::move(flag));
  flags.push_back(action_times_flag());
  for (auto& flag : policy_flags()) flags.push_back(std::move(flag));
  return flags;
}

const planner::Schedule& named_schedule(const std::string& name, Session& session) {
  const planner::Schedule& meant = planner::schedule_meant(name);
  const planner::Schedule& in_jobs = planner::find_schedule(name);
  if (&meant != &in_jobs) {
    session.note(name + " is taken as " + std::string(meant.name) + "; the one that jobs call " +
                 name + " is " + std::string(in_jobs.name));
  }
  return meant;
}

void refuse_flags(const Arguments& arguments, const std::vector<Flag>& flags,
                  const std::string& why) {
  for (const Flag& flag : flags) {
    if (arguments.has(flag.name)) throw InputError(std::string(flag.name) + " " + why);
  }
}

planner::ScheduleRequest schedule_request(const Arguments& arguments,
                                          const planner::Schedule& schedule, CostsOf whose) {
  planner::ScheduleRequest request;
  const auto ranks = arguments.integer("--pp", 1, 65535);
  const auto micro_batches = arguments.integer("--micro-batches", 1, kMostMicroBatches);
  if (!ranks || !micro_batches) {
    throw InputError("a schedule needs its sizes: give --pp P and --micro-batches M");
  }
  request.ranks = static_cast<int>(*ranks);
  request.micro_batches = static_cast<int>(*micro_batches);
  request.chunks = arguments.integer_or("--vpp", 1, 65535, schedule.default_chunks);
  for (const auto& text : arguments.all("--param")) add_parameter(request, text);
  if (const auto jobs = arguments.text("--jobs")) request.parameters["jobs"] = *jobs;
  add_synthesis_parameters(request, schedule, arguments);
  if (whose == CostsOf::Ranks || names_costs_of_ranks(arguments))
    leave_placement_open(request, schedule, arguments);
  return request;
}

CostsOf costs_of(const planner::ScheduleRequest& request) {
  return planner::chooses_placement(request) ? CostsOf::Ranks : CostsOf::Stages;
}

void add_costs(planner::ScheduleRequest& request, const planner::Schedule& schedule,
               const Arguments& arguments) {
  if (!schedule.traits.cost_driven) return;
  GivenCosts costs =
      given_costs(arguments, planner::placement_of(schedule, request), costs_of(request));
  request.costs = std::move(costs.table);
  request.memory_limit = costs.memory_limit;
}

bool names_policy(const Arguments& arguments) {
  for (const Flag& flag : policy_flags()) {
    if (arguments.has(flag.name)) return true;
  }
  return false;
}

CommPolicy policy_from(const Arguments& arguments, const CommPolicy& base) {
  CommPolicy policy = base;
  if (const auto preset = arguments.text("--preset")) policy = comm_policy_preset(*preset);
  if (const auto issue = arguments.text("--issue")) policy.issue = parse_issue(*issue);
  if (const auto channel = arguments.text("--channel")) policy.channel = parse_channel(*channel);
  if (const auto protocol = arguments.text("--protocol")) set_protocols(policy, *protocol);
  if (const auto post = arguments.text("--post")) policy.post = parse_post(*post);
  if (const auto order = arguments.text("--run-order")) policy.run_order = parse_run_order(*order);
  if (const auto connect = arguments.text("--connect")) policy.connect = parse_connect(*connect);
  if (const auto buffers = arguments.text("--buffers")) policy.buffers = parse_buffers(*buffers);
  if (const auto batches = arguments.text("--batches")) policy.batches = parse_batches(*batches);
  policy.in_flight = arguments.integer_or("--in-flight", 0, kMostInFlight, policy.in_flight);
  policy.device_queues =
      arguments.integer_or("--device-queues", 0, kMostDeviceQueues, policy.device_queues);
  return policy;
}

bool same_for_all(const CostTable& costs) {
  if (costs.actions != nullptr) return false;
  for (const StageCosts& stage : costs.stages) {
    const StageCosts& first = costs.stages.front();
    if (stage.f != first.f || stage.i != first.i || stage.w != first.w || stage.b != first.b) {
      return false;
    }
  }
  return true;
}

/// --collectives.
void use_collectives(CostTable& costs, const Arguments& arguments, int ranks, int devices_of_rank) {
  const auto name = arguments.text("--collectives");
  if (!name) return;
  const Cluster cluster = named_cluster(*name);
  if (!cluster.collectives) {
    throw InputError(*name, "",
                     "expected a cluster with a section \"collectives\"; `pipewright collectives " +
                         *name + " --fit FILE --out fitted.json` makes one from measured times");
  }
  if (ranks > cluster.devices() / devices_of_rank) {
    throw InputError("--collectives: " + *name + " has " + std::to_string(cluster.devices()) +
                     " devices, expected " + std::to_string(devices_of_rank) + " for each of " +
                     std::to_string(ranks) + " ranks");
  }
  std::vector<int> devices(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) devices[static_cast<std::size_t>(r)] = r * devices_of_rank;
  set_collectives(costs, cluster, devices);
}

GivenCosts given_costs(const Arguments& arguments, const Placement& placement, CostsOf whose,
                       int devices_of_rank) {
  GivenCosts costs;
  const GivenFlag cost = given_flag(arguments, "--cost", "--rank-cost", whose);
  costs.table = parse_costs(kAssumedCosts, cost.by_rank ? placement.ranks() : placement.stages());
  if (cost.by_rank) costs.table = resampled(costs.table, placement);
  costs.memory_limit = use_cost_flags(costs.table, arguments, placement, whose);
  use_collectives(costs.table, arguments, placement.ranks(), devices_of_rank);
  return costs;
}

Bytes use_cost_flags(CostTable& costs, const Arguments& arguments, const Placement& placement,
                     CostsOf whose) {
  const auto flag = [&](const GivenFlag& given) {
    return CostFlag{given.name, given.by_rank ? &placement : nullptr};
  };
  if (const GivenFlag cost = given_flag(arguments, "--cost", "--rank-cost", whose); cost.text)
    change_costs(*cost.text, costs, flag(cost));
  Bytes limit;
  if (const GivenFlag memory = given_flag(arguments, "--mem", "--rank-mem", whose); memory.text)
    limit = parse_memory(*memory.text, costs, flag(memory));
  use_message_bytes(costs, arguments);
  return limit;
}

std::string assumed_text(const Arguments& arguments) {
  const std::string flag = arguments.has("--rank-cost") ? "--rank-cost" : "--cost";
  const auto given = arguments.text(flag);
  if (!given) return " (assumed: no --cost)";
  const std::vector<std::string> keys = cost_keys(*given);
  const auto names = [&](std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  std::string assumed;
  const auto add = [&](const char* what) {
    assumed += (assumed.empty() ? "" : ", ") + std::string(what);
  };
  if (!names("F")) add("F");
  if (!names("I") && !names("B")) add("I");
  if (!names("W") && !names("B")) add("W");
  return assumed.empty() ? "" : " (assumed: " + assumed + ", which " + flag + " does not name)";
}

std::string costs_text(const CostTable& costs) {
  if (costs.stages.empty()) return "no costs";
  if (costs.actions != nullptr) {
    CostTable others = costs;
    others.actions = nullptr;
    return "costs of " + std::to_string(costs.actions->rows().size()) +
           " single actions; of the others " + costs_text(others);
  }
  if (!same_for_all(costs)) return "costs by stage, " + costs.source;
  const StageCosts& each = costs.stages.front();
  std::string text = "F " + format_duration(each.f);
  if (each.b == each.i + each.w) {
    text += ", I " + format_duration(each.i) + ", W " + format_duration(each.w);
  }
  text += ", B " + format_duration(each.b);
  if (costs.overlapped_pair.value > 0) text += ", FB " + format_duration(costs.overlapped_pair);
  return text + ", latency " + format_duration(costs.every_route.latency);
}

}  // namespace pipewright::tools
