#include "planner/search/requested_kind.hpp"

#include <algorithm>
#include <array>

#include "planner/branches/evaluation.hpp"
#include "planner/branches/named_configuration.hpp"
#include "planner/configurations/requested_recompute.hpp"
#include "planner/configurations/stage_replicas.hpp"

namespace pipewright::planner {
namespace {

struct KeyOfJob {
  const char *key, *field;
  Choice Strategy::*choice;
};

constexpr std::array<KeyOfJob, 15> kKeysOfJob{
    {{"schedule", "schedule_mode", &Strategy::schedule_mode},
     {"tp", "mp_degree", &Strategy::mp_degree},
     {"pp", "pp_degree", &Strategy::pp_degree},
     {"dp", "dp_degree", &Strategy::dp_degree},
     {"cp", "cp_degree", &Strategy::cp_degree},
     {"cp_comm_type", "cp_comm_type", &Strategy::cp_comm_type},
     {"ep", "ep_degree", &Strategy::ep_degree},
     {"etp", "expert_tensor_parallel_size", &Strategy::expert_tensor_parallel_size},
     {"vpp", "vpp_degree", &Strategy::vpp_degree},
     {"micro_batch_size", "micro_batch_size", &Strategy::micro_batch_size},
     {"micro_batches", "accumulate_steps", &Strategy::accumulate_steps},
     {"zero", "sharding_stage", &Strategy::sharding_stage},
     {"rank_order", "rank_order", &Strategy::rank_order},
     {"node_order", "node_order", &Strategy::node_order},
     {"sequence_parallel", "use_sequence_parallel", &Strategy::use_sequence_parallel}}};

/// Words of the text as a job has them.
std::string word_of_job(const std::string& key, const std::string& value) {
  if (key == "sequence_parallel") return value == "on" ? "true" : "false";
  return value;
}

void set_schedule(const RequestedValues& asked, Strategy& strategy) {
  const auto name = asked.find("schedule");
  if (name != asked.end()) {
    strategy.schedule_mode.clear();
    if (!find_schedule(name->second).traits.searched) strategy.schedule_mode = {name->second};
    strategy.stage_replicas.clear();
  }
  const auto replicas = asked.find("replicas");
  if (replicas == asked.end()) return;
  if (const auto counts = read_replicas(replicas->second)) strategy.stage_replicas = {*counts};
  if (name == asked.end()) strategy.schedule_mode = {kReplicatedSchedule};
  if (asked.count("pp") == 0) strategy.pp_degree.clear();
}

void set_recompute(const RequestedValues& asked, const Job& job, Strategy& strategy) {
  const auto recompute = asked.find("recompute");
  if (recompute == asked.end()) return;
  if (!estimated_architecture(job) && layered_recompute(job).fixed_by_training) return;
  const std::string& word = recompute->second;
  const bool of_all = word == "none" || word == "selective" || word == "full";
  strategy.recompute = {of_all ? word : "by_stage"};
}

Job with_values(const RequestedValues& asked, const Job& job) {
  Job kind = job;
  for (const auto& [key, field, choice] : kKeysOfJob) {
    const auto found = asked.find(key);
    if (found == asked.end() || std::string_view(key) == "schedule") continue;
    kind.strategy.*choice = {word_of_job(key, found->second)};
  }
  const auto tensor = asked.find("tp");
  if (tensor != asked.end() && tensor->second == "1" && asked.count("sequence_parallel") == 0)
    kind.strategy.use_sequence_parallel.clear();  // there is none without tp
  if (asked.count("zero") != 0 || asked.count("dp") != 0) kind.strategy.sharding_degree = 1;
  set_schedule(asked, kind.strategy);
  set_recompute(asked, job, kind.strategy);
  return kind;
}

std::string value_of(const Candidate& row, const std::string& key) {
  const ParallelSetup& p = row.parallel;
  if (key == "schedule") return row.synthesised ? row.synthesised->from : row.schedule;
  if (key == "sequence_parallel") return p.sequence_parallel ? "true" : "false";
  if (key == "cp_comm_type") return p.ring ? "p2p" : "all_gather";
  if (key == "rank_order") return std::string(name_of(p.order.of_ranks));
  if (key == "node_order") return p.order.of_nodes.empty() ? "file" : to_text(p.order.of_nodes);
  const std::array<std::pair<const char*, int>, 10> numbers{
      {{"tp", p.tensor},
       {"pp", p.pipeline},
       {"dp", p.data},
       {"cp", p.context},
       {"ep", p.experts},
       {"etp", p.expert_tensor()},
       {"vpp", p.chunks},
       {"micro_batch_size", p.micro_batch_size},
       {"micro_batches", p.micro_batches},
       {"zero", p.zero}}};
  for (const auto& [name, number] : numbers) {
    if (key == name) return std::to_string(number);
  }
  return "";
}

}  // namespace

bool is_of_kind(const std::string& text, const Job& job, const Candidate& row) {
  const NamedConfiguration named = read_configuration(text, job, &row);
  Candidate asked = unpriced(named.configuration);
  ParallelSetup& parallel = asked.parallel;
  if (parallel.recompute.is_to_choose() && row.parallel.recompute.by_stage)
    parallel.recompute = row.parallel.recompute;
  // One replica shares nothing out, and its description does not name ZeRO.
  return named.too_many_devices.empty() && named.other_batch.empty() &&
         asked.schedule == row.schedule && asked.partition == row.partition &&
         parallel.zero == row.parallel.zero && describe(asked) == describe(row);
}

Job job_of_kind(const std::string& text, const Job& job) {
  return with_values(read_requested(text), job);
}

Job job_of_mesh(const std::string& text, const Job& job) {
  RequestedValues asked = read_requested(text);
  const bool says_ranks = asked.count("replicas") != 0 && asked.count("pp") == 0;
  for (const char* key : {"schedule", "vpp", "replicas", "recompute"}) asked.erase(key);
  Job mesh = with_values(asked, job);
  if (says_ranks) mesh.strategy.pp_degree.clear();
  mesh.strategy.schedule_mode.clear();
  mesh.strategy.vpp_degree.clear();
  mesh.strategy.stage_replicas.clear();
  return mesh;
}

std::string fixed_otherwise(const Job& job, const Candidate& row) {
  std::string text;
  for (const auto& [key, field, choice] : kKeysOfJob) {
    const Choice& own = job.strategy.*choice;
    const std::string value = value_of(row, key);
    const auto is_value = [&](const std::string& one) {
      return one == value ||
             (std::string_view(key) == "schedule" && find_schedule(one).name == value);
    };
    if (own.empty() || std::any_of(own.begin(), own.end(), is_value)) continue;
    std::string values;
    for (const std::string& one : own) values += (values.empty() ? "" : ", ") + one;
    text += (text.empty() ? "" : "; ") + std::string(field) + " is " + values;
  }
  return text;
}

}  // namespace pipewright::planner
