#include "core/cluster/collectives.hpp"

#include <memory>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/costs/collective_fit.hpp"

namespace pipewright {
namespace {

constexpr double kMostNs = 1e12, kMostPriceRate = 1e18;

}  // namespace

CollectiveModel read_collectives(const JsonCursor& section, int devices_per_node) {
  if (section.find("by_gpus")) {
    return parsed_at(
        section, [&] { return fit_collectives(read_collective_rows(section, devices_per_node)); });
  }
  section.only({"launch_ns", "step_ns", "part_ns_per_byte", "bulk_ns", "bytes_per_second", "across",
                "source"});
  CollectiveModel model{
      .launch_ns = section.at("launch_ns").number(0, kMostNs),
      .step_ns = section.at("step_ns").number(0, kMostNs),
      .part_ns_per_byte = section.at("part_ns_per_byte").number(0, kMostNs),
      .bulk_ns = section.at("bulk_ns").number(0, kMostNs),
      .bytes_per_second = section.at("bytes_per_second").number(1, kMostPriceRate),
      .source = "the cluster file"};
  if (const auto across = section.find("across")) {
    across->only({"step_ns", "bytes_per_second"});
    model.across_step_ns = across->at("step_ns").number(0, kMostNs);
    model.across_bytes_per_second = across->at("bytes_per_second").number(1, kMostPriceRate);
  }
  if (const auto source = section.find("source")) model.source = read_name(*source);
  return model;
}

Json to_json(const CollectiveModel& model) {
  Json json = {{"source", model.source},   {"launch_ns", model.launch_ns},
               {"step_ns", model.step_ns}, {"part_ns_per_byte", model.part_ns_per_byte},
               {"bulk_ns", model.bulk_ns}, {"bytes_per_second", model.bytes_per_second}};
  if (model.across_bytes_per_second > 0) {
    json["across"] = {{"step_ns", model.across_step_ns},
                      {"bytes_per_second", model.across_bytes_per_second}};
  }
  return json;
}

CollectiveModel collectives_on(const Cluster& cluster) {
  PIPEWRIGHT_ASSERT(cluster.collectives.has_value(), "a cluster without prices is asked for them");
  CollectiveModel model = *cluster.collectives;
  if (cluster.nodes == 1 || model.across_bytes_per_second > 0) return model;
  model.across_step_ns = static_cast<double>(cluster.across.latency.value);
  model.across_bytes_per_second = cluster.across.bytes_per_second * ports_of_node(cluster);
  return model;
}

void set_collectives(CostTable& costs, const Cluster& cluster,
                     const std::vector<int>& device_of_rank) {
  costs.collectives = nullptr;
  if (!cluster.collectives) return;
  for (const int device : device_of_rank) {
    PIPEWRIGHT_ASSERT(device >= 0 && device < cluster.devices(),
                      "a rank sits on a device that the cluster does not have");
  }
  costs.collectives = std::make_shared<const CollectivePrices>(
      CollectivePrices{collectives_on(cluster), device_of_rank, cluster.devices_per_node});
}

}  // namespace pipewright
