#include "planner/configurations/costing.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/architecture_model.hpp"
#include "core/plan/profile_lengths.hpp"
#include "planner/estimate/coefficients.hpp"

namespace pipewright::planner {
namespace {

constexpr const char* kLayersOnly =
    "pipeline and data parallelism are tried, and where the job names them tp (mp_degree), "
    "sequence parallelism, cp (cp_degree), ep (ep_degree) and ZeRO (sharding_stage)";

/// Of the first kind of node whose device has no known rates; "" for none.
std::string unknown_device(const Cluster& cluster) {
  std::vector<std::string> models{cluster.device.model};
  if (!cluster.kinds.empty()) models.clear();
  for (const NodeKind& kind : cluster.kinds) models.push_back(kind.device.model);
  for (const std::string& model : models) {
    try {
      device_rates(model);
    } catch (const InputError&) {
      return model;
    }
  }
  return "";
}

Costing estimated(const Job& job) {
  Costing costing{.way = "estimate"};
  const std::string widths = "estimated from the widths of " + job.model.name +
                             ", a transformer of 16-bit numbers on " +
                             "GPUs; tp, pp, dp, ZeRO and recompute are tried.";
  if (job.assumes_16_bits) {
    costing.why = widths +
                  " bytes_per_element is left out, and GPUs train in 16 bits unless "
                  "somebody says otherwise.";
    costing.otherwise =
        "\"bytes_per_element\": 4 in the model, or a profile, plans it layer by "
        "layer: " +
        std::string(kLayersOnly) + ".";
  } else {
    costing.why = widths;
    costing.otherwise = "A profile (--profile) plans it layer by layer, by measured times: " +
                        std::string(kLayersOnly) + ".";
  }
  return costing;
}

/// What the estimate asks of a job that has no profile.
Costing by_operations(const Job& job) {
  Costing costing{.way = "operations"};
  const std::string layers = "layer by layer, by operation counts and the rate of " +
                             job.cluster.device.model + ", because ";
  const bool is_transformer = job.architecture || architecture_of(job.model);
  const std::string unknown = unknown_device(job.cluster);
  const std::string tried = "; " + std::string(kLayersOnly) + ".";
  const std::string measured =
      "A profile (pipewright profile, then --profile) gives measured times";
  if (job.cluster.device.kind != "cuda") {
    costing.why = layers + "its devices are no GPUs" + tried;
    costing.otherwise = measured + ".";
  } else if (!is_transformer) {
    costing.why = layers + job.model.name + " is no transformer that the estimate knows" + tried;
    costing.otherwise = measured +
                        "; the estimate is for \"transformer\" models, presets such as "
                        "llama3-70b, and an architecture.json.";
  } else if (!unknown.empty()) {
    costing.why = layers + "no rates of " + unknown + " are known to the estimate" + tried;
    costing.otherwise = measured + "; the estimate knows the devices of docs/cost-model.md.";
  } else if (job.training.optimizer != "adamw" ||
             job.training.recompute.kind == RecomputeSpec::Kind::Listed) {
    costing.why =
        layers +
        "the estimate knows only the optimizer adamw, and only recompute none, selective or "
        "full" +
        tried;
    costing.otherwise =
        "Adamw, and recompute none, selective or full, let it be estimated, with "
        "\"bytes_per_element\": 2 in the model.";
  } else {
    costing.why = layers + "its numbers have " + std::to_string(job.model.bytes_per_element) +
                  " bytes" + tried;
    costing.otherwise =
        "\"bytes_per_element\": 2 in the model estimates it as GPUs mostly train, "
        "with tp, ZeRO and recompute.";
  }
  return costing;
}

void settle_sample_lengths(Job& job, const Profile* profile) {
  if (job.sample_lengths.empty()) return;
  if (profile == nullptr)
    throw InputError("", "/sample_lengths",
                     "only a profile measured by length says what they take; give one "
                     "(--profile), or sample_scales");
  job.sample_scales.clear();
  for (std::size_t k = 0; k < job.sample_lengths.size(); ++k) {
    try {
      job.sample_scales.push_back(length_scale(*profile, job.sample_lengths[k]));
    } catch (const InputError& error) {
      throw InputError("", "/sample_lengths/" + std::to_string(k), error.message());
    }
  }
}

}  // namespace

Costing settle_costing(Job& job, const Profile* profile) {
  settle_sample_lengths(job, profile);
  if (profile != nullptr || !unknown_device(job.cluster).empty()) forget_assumed_16_bits(job);
  if (profile != nullptr) {
    return {"profile",
            "layer by layer, by the times of the profile; " + std::string(kLayersOnly) + ".",
            estimated_architecture(job) || !job.profile_path.empty()
                ? "Without the profile a transformer of 16-bit numbers on GPUs is estimated from "
                  "its widths, with tp, ZeRO and recompute."
                : "Without the profile times follow from operation counts and the device's rate."};
  }
  return estimated_architecture(job) ? estimated(job) : by_operations(job);
}

}  // namespace pipewright::planner
