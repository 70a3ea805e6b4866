#include "planner/named_configuration.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/suggest.hpp"
#include "planner/partition.hpp"
#include "planner/schedules/building.hpp"

namespace pipewright::planner {
namespace {

const std::vector<std::string_view> kKeys{"schedule",
                                          "tp",
                                          "pp",
                                          "dp",
                                          "cp",
                                          "ep",
                                          "vpp",
                                          "micro_batch_size",
                                          "micro_batches",
                                          "recompute",
                                          "sequence_parallel",
                                          "zero",
                                          "partition"};

using Values = std::map<std::string, std::string>;

Values read_values(const std::string& text) {
  Values values;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find(',', from), text.size());
    const std::string part = text.substr(from, end - from);
    from = end + 1;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw InputError("expected key=value, found \"" + part +
                       "\"; an example: tp=4,pp=8,schedule=1f1b");
    }
    const std::string key = part.substr(0, equals);
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      throw InputError("unknown key \"" + key + "\"" + did_you_mean(key, kKeys));
    values[key] = part.substr(equals + 1);
  }
  return values;
}

std::optional<int> number_of(const Values& values, const char* key, int least = 1) {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  if (least == 0 && found->second == "0") return 0;
  const auto number = positive_integer(found->second);
  if (!number) {
    throw InputError(std::string("") + key + " is a whole number of at least " +
                     std::to_string(least) + ", found \"" + found->second + "\"");
  }
  return number;
}

template <class Value, std::size_t n>
void read_word(const Values& values, const char* key,
               const std::array<std::pair<std::string_view, Value>, n>& words, Value& value) {
  const auto found = values.find(key);
  if (found == values.end()) return;
  std::string list;
  for (const auto& [word, meaning] : words) {
    if (word == found->second) {
      value = meaning;
      return;
    }
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  throw InputError(std::string("") + key + " is one of " + list + ", found \"" + found->second +
                   "\"");
}

}  // namespace

NamedConfiguration read_configuration(const std::string& text, const Job& job,
                                      const Candidate* otherwise) {
  const Values values = read_values(text);
  NamedConfiguration asked;
  ParallelSetup parallel;
  std::string schedule = "1f1b", partition = "balanced";
  if (otherwise != nullptr) {
    parallel = otherwise->parallel;
    schedule = otherwise->schedule;
    partition = otherwise->partition;
  }
  if (const auto name = values.find("schedule"); name != values.end()) {
    schedule = name->second;
    parallel.chunks = find_schedule(schedule).default_chunks;
  }
  asked.configuration.schedule = &find_schedule(schedule);
  parallel.tensor = number_of(values, "tp").value_or(parallel.tensor);
  parallel.pipeline = number_of(values, "pp").value_or(parallel.pipeline);
  parallel.context = number_of(values, "cp").value_or(parallel.context);
  parallel.experts = number_of(values, "ep").value_or(parallel.experts);
  parallel.chunks = number_of(values, "vpp").value_or(parallel.chunks);
  parallel.micro_batch_size =
      number_of(values, "micro_batch_size").value_or(parallel.micro_batch_size);
  parallel.zero = number_of(values, "zero", 0).value_or(parallel.zero);
  read_word<LayerRecompute, 3>(values, "recompute",
                               {{{"none", LayerRecompute::None},
                                 {"selective", LayerRecompute::Attention},
                                 {"full", LayerRecompute::Whole}}},
                               parallel.recompute);
  read_word<bool, 2>(values, "sequence_parallel", {{{"on", true}, {"off", false}}},
                     parallel.sequence_parallel);
  if (parallel.tensor == 1 && values.count("sequence_parallel") == 0)
    parallel.sequence_parallel = false;
  bool is_even = partition == "even";
  read_word<bool, 2>(values, "partition", {{{"balanced", false}, {"even", true}}}, is_even);
  asked.configuration.even_layers = is_even;
  const int of_replica = parallel.tensor * parallel.pipeline * parallel.context;
  const int devices = job.cluster.devices();
  const auto data = number_of(values, "dp");
  const bool keeps_data = !data && estimated_architecture(job) == std::nullopt;
  parallel.data = data ? *data : keeps_data ? parallel.data : std::max(1, devices / of_replica);
  if (parallel.devices() > devices) {
    asked.impossible = "It needs " + std::to_string(parallel.devices()) + " devices, and " +
                       job.cluster.name + " has " + std::to_string(devices) + ".";
  }
  const int samples = parallel.data * parallel.micro_batch_size;
  parallel.micro_batches =
      number_of(values, "micro_batches").value_or(std::max(1, job.global_batch / samples));
  const std::int64_t all = std::int64_t{samples} * parallel.micro_batches;
  if (asked.impossible.empty() && all != job.global_batch) {
    asked.impossible = "dp " + std::to_string(parallel.data) + " times " +
                       std::to_string(parallel.micro_batches) + " micro-batches of " +
                       std::to_string(parallel.micro_batch_size) + " are " + std::to_string(all) +
                       " samples, and the global batch is " + std::to_string(job.global_batch) +
                       ".";
  }
  asked.configuration.parallel = parallel;
  return asked;
}

std::optional<std::string> broken_rule(const NamedConfiguration& asked, const Job& job,
                                       const ConfigurationCosts& costs) {
  const Configuration& c = asked.configuration;
  ParallelSetup mesh = c.parallel;
  mesh.chunks = 1;  // these are the schedule's affair
  if (const auto reason = costs.refusal(mesh)) return "A rule forbids it: " + *reason + ".";
  if (!asked.impossible.empty()) return asked.impossible;
  const ScheduleRequest request{
      c.parallel.pipeline, c.parallel.micro_batches, c.parallel.chunks, {}};
  if (const auto reason = refusal_of(*c.schedule, request)) return *reason;
  const int stages = placement_of(*c.schedule, request).stages();
  const int layers = static_cast<int>(job.model.layers.size());
  if (stages > layers) {
    return "It has " + std::to_string(stages) + " stages, and the model has " +
           std::to_string(layers) + " layers; take fewer ranks or chunks.";
  }
  return std::nullopt;
}

Branch branch_of(const Configuration& configuration, const ConfigurationCosts& costs) {
  const ParallelSetup& parallel = configuration.parallel;
  const Placement placement = placement_of(
      *configuration.schedule, {parallel.pipeline, parallel.micro_batches, parallel.chunks, {}});
  const auto layer_costs = costs.layer_costs(parallel);
  const auto partition = configuration.even_layers
                             ? even_partition(layer_costs, placement.stages())
                             : balanced_partition(layer_costs, placement.stages());
  std::vector<StagePlan> stages;
  for (int s = 0; s < placement.stages(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    stages.push_back({partition->first_layer[i], partition->first_layer[i + 1],
                      placement.rank_of(StageId(s), MicroBatchId(0))});
  }
  Branch branch{configuration, nullptr, 0};
  branch.bound = step_bound(configuration, stages, costs.stage_costs(parallel, stages));
  branch.stages = std::make_shared<const std::vector<StagePlan>>(std::move(stages));
  return branch;
}

}  // namespace pipewright::planner
