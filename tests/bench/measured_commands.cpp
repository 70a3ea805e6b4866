#include "tests/bench/measured_commands.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/model/architecture_json.hpp"
#include "core/plan/framework_json.hpp"

namespace pipewright::test {
namespace {

void write(const std::filesystem::path& file, const Json& document) {
  std::ofstream(file) << document.dump(1);
}

/// Its links are those by which machine_of() gives the row's rates; both are in proportion.
Cluster cluster_of(const MeasuredCase& row) {
  const planner::NodeRates& node = row.machine.nodes.front();
  const int devices = row.setup.devices();
  Cluster cluster;
  cluster.name = "row";
  cluster.devices_per_node = std::min(devices, row.machine.devices_per_node);
  cluster.nodes = devices / cluster.devices_per_node;
  cluster.device = {"cuda", std::string(node.device.name),
                    Bytes(std::llround(node.device.memory_bytes)), node.device.peak_flops};
  constexpr double kUnit = 1e9;
  cluster.inside = {Nanoseconds(5'000), kUnit, Sharing::Fair};
  cluster.across = {Nanoseconds(10'000), kUnit, Sharing::Fair};
  const planner::NodeRates by_unit = planner::machine_of(cluster).nodes.front();
  cluster.inside.bytes_per_second *= node.inside_bytes_per_second / by_unit.inside_bytes_per_second;
  // A part of a node has a part of its ports.
  const double part = static_cast<double>(cluster.devices_per_node) / row.machine.devices_per_node;
  cluster.across.bytes_per_second *=
      part * node.network_bytes_per_second / by_unit.network_bytes_per_second;
  return cluster;
}

/// As a file: what differs from the known framework that its name begins with.
FrameworkTraits named(FrameworkTraits framework) {
  for (const FrameworkTraits& known : known_frameworks()) {
    if (framework.name.starts_with(known.name) && known.name.size() > framework.like.size())
      framework.like = known.name;
  }
  framework.name = "row";
  return framework;
}

const char* why_no_command(const MeasuredCase& row) {
  if (row.machine.nodes.size() > 1) return "several kinds of nodes";
  if (!row.candidates.empty()) return "a setup that is not told";
  if (row.setup.order != planner::DeviceOrder{}) return "an order of devices";
  if (!row.setup.tied_head_reduced) return "a head that is tied and not reduced";
  const int each = std::min(row.setup.devices(), row.machine.devices_per_node);
  return row.setup.devices() % each == 0 ? nullptr : "a part of a node";
}

const char* recompute_of(const planner::ParallelSetup& setup) {
  switch (setup.recompute.of_all) {
    case LayerRecompute::Whole:
      return "full";
    case LayerRecompute::Attention:
      return "selective";
    default:
      return "none";
  }
}

}  // namespace

std::optional<std::vector<std::string>> command_of(const MeasuredCase& row,
                                                   const std::filesystem::path& folder,
                                                   std::string& why_not) {
  if (const char* why = why_no_command(row)) {
    why_not = why;
    return std::nullopt;
  }
  const planner::ParallelSetup& s = row.setup;
  std::filesystem::create_directories(folder);
  write(folder / "model.json", to_json(row.model));
  write(folder / "cluster.json", to_json(cluster_of(row)));
  write(folder / "framework.json", to_json(named(row.framework)));
  std::vector<std::string> words{"estimate"};
  const auto add = [&](const char* flag, const std::string& value) {
    words.emplace_back(flag);
    words.push_back(value);
  };
  words.push_back((folder / "model.json").string());
  add("--cluster", (folder / "cluster.json").string());
  add("--framework", (folder / "framework.json").string());
  add("--recompute", recompute_of(s));
  add("--global-batch", std::to_string(s.data * s.micro_batch_size * s.micro_batches));
  add("--tp", std::to_string(s.tensor));
  add("--pp", std::to_string(s.pipeline));
  if (!s.blocks_of_rank.empty()) {
    std::string blocks;
    for (const int count : s.blocks_of_rank)
      blocks += (blocks.empty() ? "" : ",") + std::to_string(count);
    add("--blocks", blocks);
  }
  add("--dp", std::to_string(s.data));
  add("--cp", std::to_string(s.context));
  add("--ep", std::to_string(s.experts));
  if (row.model.experts.count > 0) add("--etp", std::to_string(s.expert_tensor()));
  add("--vpp", std::to_string(s.chunks));
  add("--micro-batch-size", std::to_string(s.micro_batch_size));
  add("--zero", std::to_string(s.zero));
  if (s.shard_groups() > 1) add("--shards", std::to_string(s.shards));
  add("--sequence-parallel", s.sequence_parallel ? "on" : "off");
  if (s.overlap_gradients) words.emplace_back("--overlap-gradients");
  add("--top", "1");
  std::ofstream line(folder / "command");  // for whoever wants to ask again
  for (const std::string& word : words) line << (word == words.front() ? "" : " ") << word;
  words.emplace_back("--json");
  return words;
}

}  // namespace pipewright::test
