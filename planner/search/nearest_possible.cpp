#include "planner/search/nearest_possible.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "core/base/most_devices.hpp"
#include "planner/branches/branch.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/search/job_costs.hpp"

namespace pipewright::planner {
namespace {

constexpr double kProbeSeconds = 0.5;  // of counted work for a question
constexpr double kNearEnough = 1.01;   // between a limit that does and one that does not
constexpr int kNodeCounts = 24;        // tried one by one; then doubled

/// A field whose values a job may leave open.
struct Field {
  const char* name;
  Choice Strategy::*choice;
};
constexpr std::array<Field, 12> kFields{
    {{"pp_degree", &Strategy::pp_degree},
     {"dp_degree", &Strategy::dp_degree},
     {"mp_degree", &Strategy::mp_degree},
     {"cp_degree", &Strategy::cp_degree},
     {"ep_degree", &Strategy::ep_degree},
     {"expert_tensor_parallel_size", &Strategy::expert_tensor_parallel_size},
     {"vpp_degree", &Strategy::vpp_degree},
     {"micro_batch_size", &Strategy::micro_batch_size},
     {"accumulate_steps", &Strategy::accumulate_steps},
     {"schedule_mode", &Strategy::schedule_mode},
     {"sharding_stage", &Strategy::sharding_stage},
     {"recompute", &Strategy::recompute}}};

/// Asks whether variants of a job are possible.
class Probe {
 public:
  Probe(const Profile* profile, const SearchOptions& options)
      : profile_(profile), options_(options) {
    options_.keep = 1;
    options_.first_possible = true;
    options_.synthesis = options_.front = options_.exhaustive = false;
    options_.budget_seconds = kProbeSeconds;
    options_.share = {};
    options_.journal = nullptr;
    if (options.progress)
      options_.progress = [&options](const SearchProgress& now) {
        SearchProgress asking = now;
        asking.phase = "what would do";
        options.progress(asking);
      };
  }

  std::optional<Candidate> possible(const Job& job) const {
    SearchResult found = search(job, profile_, options_);
    if (found.ranked.empty()) return std::nullopt;
    return std::move(found.ranked.front());
  }

  /// The one that holds least on its fullest rank, to a hundredth; nothing where memory is not all
  /// that is missing.
  std::optional<Candidate> least_memory(const Job& job, Bytes limit) const {
    Job roomy = job;
    roomy.strategy.memory_limit = Bytes(INT64_MAX / 4);
    std::optional<Candidate> least = possible(roomy);
    double over = static_cast<double>(limit.value);
    while (least && static_cast<double>(least->peak_bytes.value) > over * kNearEnough) {
      const double middle = std::sqrt(over * static_cast<double>(least->peak_bytes.value));
      roomy.strategy.memory_limit = Bytes(static_cast<std::int64_t>(middle));
      if (auto less = possible(roomy)) {
        least = std::move(less);
      } else {
        over = middle;
      }
    }
    return least;
  }

  /// The least number of whole nodes' devices for which something is possible.
  std::optional<int> enough_devices(const Job& job, std::int64_t at_least) const {
    const Cluster& cluster = job.cluster;
    if (!cluster.kinds.empty() || shares_this_machine(cluster)) return std::nullopt;
    const int each = cluster.devices_per_node;
    int nodes =
        static_cast<int>(std::max<std::int64_t>(cluster.nodes + 1, (at_least + each - 1) / each));
    Job larger = job;
    for (int tried = 0; std::int64_t{nodes} * each <= kMostDevices; ++tried) {
      larger.cluster.nodes = nodes;
      if (possible(larger)) return nodes * each;
      nodes = tried < kNodeCounts ? nodes + 1 : nodes * 2;
    }
    return std::nullopt;
  }

 private:
  const Profile* profile_;
  SearchOptions options_;
};

/// Weights, gradients and optimizer state, once.
Bytes state_of_model(const Job& job, const ConfigurationCosts& costs) {
  const ParallelSetup alone;
  if (const Bytes least = costs.least_memory(alone); least.value > 0) return least;
  const std::vector<StagePlan> whole{{0, static_cast<int>(job.model.layers.size()), RankId(0)}};
  return costs.stage_memory(alone, whole).front().constant;
}

std::string devices_text(int count) {
  return std::to_string(count) + (count == 1 ? " device" : " devices");
}

std::string memory_sentence(const Candidate& nearest, Bytes limit) {
  return "The nearest, " + describe(nearest) + ", holds " + format_bytes(nearest.peak_bytes) +
         " on its rank " + std::to_string(nearest.fullest_rank) + " (" +
         format_bytes(nearest.state_bytes) +
         " of weights, gradients and optimizer state), and a rank may hold " + format_bytes(limit) +
         ".";
}

/// The first sentence: what is missing, of all memory where the state alone is too much.
std::string missing_memory(const Job& job, const ConfigurationCosts& costs,
                           const Candidate& nearest, const Probe& probe) {
  const Bytes limit = costs.memory_limit(), state = state_of_model(job, costs);
  const std::int64_t all = limit.value * job.cluster.devices();
  const bool is_too_much = state.value > all;
  std::string text;
  if (is_too_much) {
    text = job.model.name + " needs " + format_bytes(state) +
           " of state alone (weights, gradients and optimizer), " +
           devices_text(job.cluster.devices()) + (job.cluster.devices() == 1 ? " has " : " have ") +
           format_bytes(Bytes(all));
  } else {
    text = "memory: " + format_bytes(nearest.peak_bytes) +
           " on a rank at least, and a rank may hold " + format_bytes(limit);
  }
  const auto enough =
      probe.enough_devices(job, is_too_much && limit.value > 0 ? state.value / limit.value : 0);
  return text + (enough ? "; " + std::to_string(*enough) + " devices would do." : ".");
}

/// The fields that, left open one by one, make it possible.
void add_open_fields(const Job& job, const Probe& probe, std::vector<std::string>& sentences) {
  for (const auto& [name, choice] : kFields) {
    const Choice& own = job.strategy.*choice;
    if (own.empty()) continue;
    Job open = job;
    (open.strategy.*choice).clear();
    if (choice == &Strategy::recompute) open.strategy.opens_recompute = true;
    if (choice == &Strategy::dp_degree) open.strategy.sharding_degree = 1;
    if (choice == &Strategy::schedule_mode) open.strategy.stage_replicas.clear();
    if (const auto found = probe.possible(open))
      sentences.push_back(std::string(name) + " left open would do: " + describe(*found) + ".");
  }
}

/// Whether it rules out what is tried for comparison alone, or what stands elsewhere in the table.
bool is_no_rule(LeftOut reason) {
  return reason == LeftOut::SameCut || reason == LeftOut::SameByRank ||
         reason == LeftOut::OverMemory || reason == LeftOut::TooSlowForTable ||
         reason == LeftOut::TooSlowForBaseline || reason == LeftOut::TooSlowForFront;
}

/// The nearest of the rules that ruled something out: a schedule's own constraint is nearer than a
/// mesh that is not possible, and a rule with an example says more.
std::string nearest_rule(const SearchResult& nothing) {
  const auto place = [&](const LeftOutReason& reason) {
    if (reason == LeftOut::Stuck) return 0;
    if (nothing.examples.count(reason) == 0) return 3;
    return reason.why == LeftOut::OutsideConstraint ? 1 : 2;
  };
  // The nearest place, there the most, and of as many the first as they are printed.
  const auto key = [&](const LeftOutCounts::value_type& entry) {
    return std::tuple(place(entry.first), -entry.second, sentence_of(entry.first));
  };
  const LeftOutCounts::value_type* nearest = nullptr;
  for (const auto& entry : nothing.pruned) {
    if (is_no_rule(entry.first.why)) continue;
    if (nearest == nullptr || key(entry) < key(*nearest)) nearest = &entry;
  }
  if (nearest == nullptr) return "the job leaves nothing to try.";
  const auto example = nothing.examples.find(nearest->first);
  return sentence_of(nearest->first) +
         (example == nothing.examples.end() ? "" : ": " + example->second) + ".";
}

}  // namespace

NearestPossible nearest_possible(const Job& job, const Profile* profile,
                                 const SearchOptions& options, const SearchResult& nothing) {
  NearestPossible answer;
  const Probe probe(profile, options);
  const auto costs = costs_of_job(job, profile, options.cores);
  const Bytes limit = costs->memory_limit();
  if (nothing.pruned.count(LeftOut::OverMemory) != 0)
    answer.candidate = probe.least_memory(job, limit);
  if (answer.candidate) {
    answer.sentences.push_back(missing_memory(job, *costs, *answer.candidate, probe));
    answer.sentences.push_back(memory_sentence(*answer.candidate, limit));
  } else {
    answer.sentences.push_back(nearest_rule(nothing));
  }
  add_open_fields(job, probe, answer.sentences);
  return answer;
}

}  // namespace pipewright::planner
