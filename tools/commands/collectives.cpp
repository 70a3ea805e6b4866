// pipewright collectives: what collectives take on a cluster, and a fit of these prices to measured
// all-reduces.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/most_devices.hpp"
#include "core/cluster/collectives.hpp"
#include "core/costs/collective_fit.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/named_cluster.hpp"

namespace pipewright::tools {
namespace {

constexpr int kMostMembers = 1024;
constexpr std::size_t kMostSource = 200;  // bytes of a name in a file

/// A line of the table.
struct PricedCall {
  ActionKind kind;
  CollectiveGroup group;
  std::int64_t bytes = 0;
  CollectivePrice price;
};

/// The all-reduces of one size of groups that were measured.
struct MeasuredGroup {
  CollectiveGroup group;
  CollectiveErrors fitted;
  std::optional<CollectiveErrors> left_out;  // of the model that does not know them
};

struct FitReport {
  std::string source;
  std::vector<MeasuredGroup> groups;
};

std::vector<ActionKind> kinds_of(const Arguments& arguments) {
  std::vector<ActionKind> kinds;
  for (const std::string& name : arguments.all("--collective")) {
    for (int k = 0; k < kActionKinds; ++k) {
      const auto kind = static_cast<ActionKind>(k);
      if (is_group_collective(kind) && to_string(kind) == name) kinds.push_back(kind);
    }
  }
  return kinds.empty() ? std::vector{ActionKind::AllReduce} : kinds;
}

std::vector<int> members_of(const Arguments& arguments, const Cluster& cluster) {
  const int most = std::min(cluster.devices(), kMostMembers);
  std::vector<int> members;
  for (const std::string& word : arguments.words("--members"))
    members.push_back(static_cast<int>(parse_integer(word, "--members", 1, most)));
  if (!members.empty()) return members;
  for (int n = 2; n <= most; n *= 2) members.push_back(n);
  return members;
}

std::vector<std::int64_t> sizes_of(const Arguments& arguments) {
  std::vector<std::int64_t> sizes;
  for (const std::string& word : arguments.words("--bytes")) {
    const Bytes size = parse_bytes(word, "--bytes");
    if (size.value < 0) throw InputError("--bytes: expected 0 bytes or more, found " + word);
    sizes.push_back(size.value);
  }
  if (!sizes.empty()) return sizes;
  return {1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28};
}

MeasuredCollectives measured_in(const std::vector<std::string>& files, const Cluster& cluster) {
  MeasuredCollectives all;
  for (const std::string& file : files) {
    MeasuredCollectives one = read_collective_text(read_text(file), file, cluster.devices_per_node);
    if (all.source.find(one.source) == std::string::npos)
      all.source += (all.source.empty() ? "" : "; ") + one.source;
    all.rows.insert(all.rows.end(), one.rows.begin(), one.rows.end());
  }
  if (all.source.size() > kMostSource) all.source = std::to_string(files.size()) + " files";
  return all;
}

/// Fits the cluster's prices to the rows and says how well that went.
FitReport fit_cluster(Cluster& cluster, const MeasuredCollectives& measured) {
  if (!cluster.kinds.empty())
    throw InputError("--fit: a cluster of several kinds of nodes has no one price of a collective");
  cluster.collectives = fit_collectives(measured);
  const CollectiveModel model = collectives_on(cluster);
  const std::vector<LeftOutGroup> left_out = leave_each_size_out(measured);
  FitReport report{measured.source, {}};
  std::vector<MeasuredCollective> rest = measured.rows;
  while (!rest.empty()) {
    const CollectiveGroup group = rest.front().group;
    const auto other = std::stable_partition(rest.begin(), rest.end(), [&](const auto& row) {
      return row.group.members == group.members && row.group.nodes == group.nodes;
    });
    // Rows between nodes on a cluster of one node have no price.
    if (group.nodes == 1 || model.across_bytes_per_second > 0)
      report.groups.push_back({group, errors_of(model, {rest.begin(), other}), std::nullopt});
    rest.erase(rest.begin(), other);
  }
  std::sort(report.groups.begin(), report.groups.end(), [](const auto& a, const auto& b) {
    return std::pair(a.group.nodes, a.group.members) < std::pair(b.group.nodes, b.group.members);
  });
  for (MeasuredGroup& each : report.groups) {
    for (const LeftOutGroup& out : left_out) {
      if (each.group.nodes == 1 && out.members == each.group.members) each.left_out = out.errors;
    }
  }
  return report;
}

/// As the simulator prices them: by the cluster's section, or else a ring over its ports.
std::vector<PricedCall> priced_calls(const Cluster& cluster, const Arguments& arguments) {
  std::vector<PricedCall> calls;
  const std::vector<ActionKind> kinds = kinds_of(arguments);
  const std::vector<std::int64_t> sizes = sizes_of(arguments);
  for (const int members : members_of(arguments, cluster)) {
    std::vector<int> devices(static_cast<std::size_t>(members));
    std::iota(devices.begin(), devices.end(), 0);
    CostTable costs;
    set_routes(costs, cluster, devices);
    const int each = std::min(members, cluster.devices_per_node);
    const CollectiveGroup group{members, (members + each - 1) / each, each};
    Collective collective;
    for (const int device : devices) collective.members.push_back({RankId(device)});
    for (const ActionKind kind : kinds) {
      for (const std::int64_t bytes : sizes) {
        collective.kind = kind;
        collective.call_bytes = bytes;
        PricedCall call{kind, group, bytes, {}};
        if (cluster.collectives)
          call.price = price_of(costs.collectives->model, kind, group, bytes);
        call.price.time = costs.collective_time(collective, members);
        calls.push_back(call);
      }
    }
  }
  return calls;
}

/// What nccl-tests calls the bus bandwidth, in bytes a second: that of a link which would be busy
/// all the time (its doc/PERFORMANCE.md).
double bus_rate(const PricedCall& call) {
  const double n = call.group.members;
  const double factor = call.kind == ActionKind::AllReduce ? 2 * (n - 1) / n
                        : call.kind == ActionKind::Broadcast || call.kind == ActionKind::RingSend
                            ? 1
                            : (n - 1) / n;
  if (call.price.time.value == 0) return 0;
  return factor * static_cast<double>(call.bytes) / static_cast<double>(call.price.time.value) *
         1e9;
}

std::string two_digits(double value) {
  const auto hundredths = std::llround(value * 100);
  const auto rest = hundredths % 100;
  return std::to_string(hundredths / 100) + (rest < 10 ? ".0" : ".") + std::to_string(rest);
}

std::string rate_text(double bytes_per_second) {
  return two_digits(bytes_per_second / 1e9) + " GB/s";
}

void print_model(const Cluster& cluster, Session& session) {
  const auto line = [&](const std::string& text) {
    session.print(wrapped(text, session.terminal().width, 0));
  };
  if (!cluster.collectives) {
    line(cluster.name +
         ": no section \"collectives\"; a collective is a ring over the ports, without launch or "
         "protocol (unproven)");
    return;
  }
  const CollectiveModel model = collectives_on(cluster);
  line(cluster.name + ": launch " + time_text(model.launch_ns) + ", step " +
       time_text(model.step_ns) + ", low-latency " + time_text(model.part_ns_per_byte * 1024) +
       " for each KiB of a member's part, bulk " + time_text(model.bulk_ns) + ", link " +
       rate_text(model.bytes_per_second));
  if (cluster.nodes > 1) {
    line(std::string("between nodes, ") +
         (cluster.collectives->across_bytes_per_second > 0 ? "as the file says"
                                                           : "from the cluster's ports") +
         ": step " + time_text(model.across_step_ns) + ", node " +
         rate_text(model.across_bytes_per_second) + " (unproven: no rows)");
  }
  line("from " + model.source);
}

void print_fit(const FitReport& report, Session& session) {
  using Align = Table::Align;
  Table table({{"measured"},
               {"rows", Align::Right},
               {"fitted, mean error", Align::Right},
               {"left out, mean error", Align::Right},
               {"largest", Align::Right}});
  for (const MeasuredGroup& each : report.groups) {
    const std::string name =
        std::to_string(each.group.members) + " members" +
        (each.group.nodes > 1 ? " on " + std::to_string(each.group.nodes) + " nodes (not fitted)"
                              : "");
    const auto& out = each.left_out;
    table.add({name, std::to_string(each.fitted.rows), percent_text(each.fitted.mean),
               out ? percent_text(out->mean) : "-", out ? percent_text(out->worst) : "-"});
  }
  session.print(table.text(session.terminal()));
  session.print(wrapped("left out: predicted by a fit to the other sizes of groups inside a node",
                        session.terminal().width, 0));
}

void print_calls(const std::vector<PricedCall>& calls, bool modelled, Session& session) {
  using Align = Table::Align;
  Table table({{"collective"},
               {"members", Align::Right},
               {"nodes", Align::Right},
               {"bytes", Align::Right},
               {"time", Align::Right},
               {"bus rate", Align::Right},
               {"algorithm"},
               {"protocol"},
               {"prices of a"}});
  for (const PricedCall& call : calls) {
    table.add({std::string(to_string(call.kind)), std::to_string(call.group.members),
               std::to_string(call.group.nodes), format_bytes(Bytes(call.bytes)),
               format_duration(call.price.time), rate_text(bus_rate(call)),
               std::string(to_string(call.price.algorithm)),
               modelled ? std::string(to_string(call.price.protocol)) : "-",
               modelled && is_proven(call.kind, call.group) ? "measured kind" : "unproven"});
  }
  session.print(table.text(session.terminal()));
}

Json errors_fields(const CollectiveErrors& errors) {
  return {{"rows", errors.rows}, {"mean_error", errors.mean}, {"worst_error", errors.worst}};
}

Json fit_fields(const FitReport& report) {
  Json groups = Json::array();
  for (const MeasuredGroup& each : report.groups) {
    groups.push_back({{"members", each.group.members},
                      {"nodes", each.group.nodes},
                      {"fitted", errors_fields(each.fitted)},
                      {"left_out", each.left_out ? errors_fields(*each.left_out) : Json()}});
  }
  return {{"source", report.source}, {"groups", groups}};
}

Json call_fields(const PricedCall& call, bool modelled) {
  return {{"collective", to_string(call.kind)},
          {"members", call.group.members},
          {"nodes", call.group.nodes},
          {"bytes", call.bytes},
          {"time_ns", call.price.time.value},
          {"algorithm", to_string(call.price.algorithm)},
          {"protocol", modelled ? Json(to_string(call.price.protocol)) : Json()},
          {"proven", modelled && is_proven(call.kind, call.group)}};
}

int run_collectives(const Arguments& arguments, Session& session) {
  Cluster cluster = named_cluster(arguments.positionals().front(),
                                  arguments.integer_or("--devices", 1, kMostDevices, 0));
  std::optional<FitReport> report;
  if (arguments.has("--fit"))
    report = fit_cluster(cluster, measured_in(arguments.all("--fit"), cluster));
  const bool modelled = cluster.collectives.has_value();
  const std::vector<PricedCall> calls = priced_calls(cluster, arguments);
  if (session.json()) {
    Json fields = {{"cluster", cluster.name},
                   {"collectives", modelled ? to_json(collectives_on(cluster)) : Json()}};
    if (report) fields["measured"] = fit_fields(*report);
    fields["prices"] = Json::array();
    for (const PricedCall& call : calls) fields["prices"].push_back(call_fields(call, modelled));
    session.print_result(fields);
  } else {
    print_model(cluster, session);
    if (report) print_fit(*report, session);
    print_calls(calls, modelled, session);
  }
  if (const auto out = arguments.text("--out")) {
    session.save(*out, to_text(to_json(cluster)));
    session.wrote(*out);
  }
  return kDone;
}

}  // namespace

Command collectives_command() {
  Command command;
  command.name = "collectives";
  command.summary = "what collectives take on a cluster, and a fit to measured all-reduces";
  command.description =
      "A cluster file's section \"collectives\" says what a launch, a step, a byte and the two "
      "protocols cost; the cheapest of ring, tree and hierarchical counts, in simulate and tune "
      "too "
      "(docs/collectives.md). --fit finds these terms in measured times and says how far a fit to "
      "the other sizes of groups is from each size. Without the section a collective is a ring "
      "over "
      "the ports. Only all-reduces inside a node have been compared with measurements.";
  command.examples = {
      {"collectives dgx-a100 --fit examples/nccl-all-reduce-a100.json",
       "fitted, and each size of groups predicted from the others"},
      {"collectives dgx-a100 --fit examples/nccl-all-reduce-a100.json --out fitted.json",
       "a cluster file with the section"},
      {"collectives dgx-a100 --devices 16 --collective ALL_GATHER --members 8,16 --bytes 1MiB",
       "a ring over the ports of a preset"},
  };
  command.positionals = {
      {.name = "CLUSTER", .help = "a preset, or a cluster.json", .least = 1, .most = 1}};
  command.flags = {
      {.group = "Cluster", .name = "--devices", .argument = "N", .help = "of the preset (8)"},
      {.group = "Cluster",
       .name = "--fit",
       .argument = "FILE",
       .help = "measured all-reduces: JSON with by_gpus, or what nccl-tests' all_reduce_perf "
               "prints; again for further files",
       .repeatable = true,
       .is_file = true},
      {.group = "Prices",
       .name = "--collective",
       .argument = "NAME",
       .help = "again for several (ALL_REDUCE)",
       .repeatable = true,
       .choices = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST",
                   "RING_SEND"},
       .checked = true},
      {.group = "Prices",
       .name = "--members",
       .argument = "N,...",
       .help = "on the first N devices, at most 1024 (2, 4, 8, ...)"},
      {.group = "Prices",
       .name = "--bytes",
       .argument = "BYTES,...",
       .help = "sizes (1KiB,64KiB,1MiB,16MiB,256MiB)"},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "the cluster with its section, as a file",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File},
  };
  command.run = run_collectives;
  return command;
}

}  // namespace pipewright::tools
