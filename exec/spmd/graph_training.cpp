#include "exec/spmd/graph_training.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/words.hpp"
#include "core/spmd/graph/step_calls.hpp"
#include "exec/base/random.hpp"
#include "exec/collectives/threads.hpp"
#include "exec/spmd/graph_rank.hpp"

namespace pipewright::exec::graphs {
namespace {

using spmd::OperatorGraph;
using spmd::TrainingArray;
using spmd::TrainingStep;
using spmd::TrainingSteps;

/// Whole numbers are below what the operators that take them can choose from.
std::int64_t choices_of(const OperatorGraph& graph, std::size_t tensor) {
  if (graph.tensors[tensor].type == "bool") return 2;
  std::int64_t least = std::int64_t{1} << 24;
  for (const spmd::GraphOperator& one : graph.operators) {
    const auto inputs = tensors_of(one.inputs), outputs = tensors_of(one.outputs);
    const bool is_first = inputs[0] == tensor;
    if (is_first && !is_of_fractions(graph.tensors[*outputs[0]]))
      least = std::min(least, choices_of(graph, *outputs[0]));
    const auto shape = [&](std::size_t place) { return graph.tensors[*inputs[place]].shape; };
    if (one.rule == "embedding" && is_first) least = std::min(least, shape(1)[0]);
    if (one.rule == "one_hot" && is_first) {
      least = std::min(least, graph.tensors[*outputs[0]].shape.back());
    }
    if (is_loss_of_classes(one) && inputs[1] == tensor) least = std::min(least, shape(0).back());
  }
  return std::max<std::int64_t>(1, least);
}

/// Uniform; of a matrix in the range that keeps the size of what it multiplies.
std::vector<float> drawn_values(const OperatorGraph& graph, std::size_t at, std::uint64_t key) {
  const spmd::GraphTensor& tensor = graph.tensors[at];
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape) elements *= size;
  std::vector<float> values(sized(elements));
  const std::int64_t choices = choices_of(graph, at);
  const bool is_matrix = tensor.role == spmd::TensorRole::Parameter && tensor.shape.size() > 1;
  const float range =
      is_matrix ? 1 / std::sqrt(static_cast<float>(tensor.shape[tensor.shape.size() - 2])) : 1.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        is_of_fractions(tensor)
            ? range * symmetric_uniform(key, i)
            : static_cast<float>(uniform_below(key, i, static_cast<std::uint64_t>(choices)));
  }
  return values;
}

/// As given, else drawn, by the tensor's name; of data what each micro-batch has.
std::vector<std::vector<float>> first_values(const OperatorGraph& graph, std::size_t at,
                                             const GraphTrainingOptions& options) {
  const spmd::GraphTensor& tensor = graph.tensors[at];
  const bool is_data = tensor.role != spmd::TensorRole::Parameter;
  const std::size_t count = options.schedule && is_data ? options.schedule->micro_batches : 1;
  const auto given = options.values.find(tensor.name);
  std::vector<std::vector<float>> values;
  for (std::size_t one = 0; one < count; ++one) {
    if (given == options.values.end()) {
      const std::string name = tensor.name + (one == 0 ? "" : "#" + std::to_string(one));
      values.push_back(drawn_values(graph, at, key_of(options.seed, name)));
      continue;
    }
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    const bool is_for_all = given->second.size() > sized(elements);
    const auto begin = given->second.begin() + (is_for_all ? elements * std::ssize(values) : 0);
    values.emplace_back(begin, begin + elements);
  }
  return values;
}

std::vector<int> ranks_of(const OperatorGraph& graph) {
  std::set<int> ranks;
  for (const spmd::NamedMesh& one : graph.meshes) {
    ranks.insert(one.mesh.ranks.begin(), one.mesh.ranks.end());
  }
  return {ranks.begin(), ranks.end()};
}

/// A gradient goes back only through the outputs that have one.
void require_gradients(const OperatorGraph& graph, const TrainingSteps& steps,
                       const LocalFunctions& functions) {
  for (const TrainingStep& step : steps.steps) {
    if (step.kind != TrainingStep::Kind::Backward) continue;
    const spmd::GraphOperator& one = graph.operators[step.at];
    const LocalFunction* own = function_of(one, functions);
    if (own != nullptr && own->backward) continue;
    // Of a function without a backward, of no output.
    const std::size_t only =
        own != nullptr ? step.of_outputs.size() : local_operator(one).differentiated;
    for (std::size_t place = 0; place < step.of_outputs.size(); ++place) {
      if (!step.of_outputs[place] || only == kAllPlaces || only == place) continue;
      throw InputError("operator \"" + one.name + "\" (" + one.rule + "): the loss depends on \"" +
                       graph.tensors[*tensors_of(one.outputs)[place]].name +
                       "\", through which no gradient is computed here");
    }
  }
}

void require_runnable(const OperatorGraph& graph, const TrainingSteps& steps,
                      const LocalFunctions& functions) {
  if (ranks_of(graph).size() > static_cast<std::size_t>(kMostGraphRanks)) {
    throw InputError("the meshes have " + std::to_string(ranks_of(graph).size()) +
                     " ranks together; a run has at most " + std::to_string(kMostGraphRanks));
  }
  for (const spmd::GraphTensor& tensor : graph.tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    if (elements < 1 || elements > kMostGraphElements) {
      throw InputError("\"" + tensor.name + "\" has " + std::to_string(elements) +
                       " elements; in a run a tensor has 1 to " +
                       std::to_string(kMostGraphElements));
    }
  }
  for (const spmd::GraphOperator& one : graph.operators) {
    if (function_of(one, functions) == nullptr) require_local(graph, one);
  }
  require_gradients(graph, steps, functions);
}

/// Each micro-batch has its own data, and arrays of its own while it is under way.
void require_micro_batches(const OperatorGraph& graph, const TrainingSteps& steps,
                           std::size_t micro_batches) {
  constexpr std::size_t kMostArrays = std::size_t{1} << 20, kMostData = std::size_t{1} << 28;
  std::size_t data = 0;
  const auto producers = producers_of(graph);
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    if (producers[at] || graph.tensors[at].role == spmd::TensorRole::Parameter) continue;
    std::int64_t elements = 1;
    for (const std::int64_t size : graph.tensors[at].shape) elements *= size;
    data += sized(elements);
  }
  const std::size_t most = std::min(kMostArrays / std::max<std::size_t>(1, steps.arrays.size()),
                                    kMostData / std::max<std::size_t>(1, data));
  if (micro_batches <= most) return;
  throw InputError("\"accumulate_steps\" is " + std::to_string(micro_batches) +
                   "; of this graph a step has at most " + std::to_string(most));
}

/// The ranks of all groups that any step needs.
std::set<std::vector<int>> wanted_groups(const OperatorGraph& graph, const TrainingSteps& steps) {
  std::set<std::vector<int>> wanted;
  for (const TrainingStep& step : steps.steps) {
    if (step.kind == TrainingStep::Kind::Move) {
      const TrainingArray& from = steps.arrays[*step.inputs[0]];
      add_groups_of(step.plan, {graph.meshes[from.mesh].mesh, from.layout}, wanted);
    } else if (step.kind == TrainingStep::Kind::Forward) {
      for (auto& group : groups_of_classes(graph, graph.operators[step.at])) wanted.insert(group);
    }
  }
  return wanted;
}

std::map<int, GroupsByRanks> groups_by_rank(const std::set<std::vector<int>>& wanted) {
  std::map<int, GroupsByRanks> by_rank;
  for (const std::vector<int>& ranks : wanted) {
    auto members = collectives::groups_of_threads(static_cast<int>(ranks.size()));
    for (std::size_t at = 0; at < ranks.size(); ++at) {
      by_rank[ranks[at]][ranks] = std::move(members[at]);
    }
  }
  return by_rank;
}

/// All processes ask for all of them, in one order.
GroupsByRanks groups_of_process(const std::set<std::vector<int>>& wanted,
                                const GraphProcess& process) {
  GroupsByRanks groups;
  for (const std::vector<int>& ranks : wanted) {
    std::vector<RankId> members;
    for (const int rank : ranks) members.emplace_back(rank);
    auto group = members.size() > 1 ? process.group(members)
                                    : std::move(collectives::groups_of_threads(1).front());
    if (group != nullptr) groups[ranks] = std::move(group);
  }
  return groups;
}

/// Each rank in a thread; the first error of any ends all.
void run_all(std::map<int, std::unique_ptr<RankOfGraph>>& ranks, ThreadMail& mail) {
  std::mutex guard;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (auto& [rank, one] : ranks) {
    threads.emplace_back([&guard, &failure, &mail, own = one.get()] {
      try {
        own->train();
      } catch (...) {
        const std::lock_guard lock(guard);
        if (!failure) failure = std::current_exception();
        for (const auto& [members, group] : own->groups()) group->give_up("another rank failed");
        mail.close();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

/// Puts a rank's part where it belongs.
void put(const LocalArray& part, const spmd::Shape& shape, std::vector<float>& whole) {
  LocalArray all = zeros_of({.offset = spmd::Shape(shape.size()), .shape = shape});
  if (!whole.empty()) all.values = std::move(whole);
  copy_box(part, part.part, all);
  whole = std::move(all.values);
}

void require_finite(const GraphTraining& training) {
  for (std::size_t step = 0; step < training.losses.size(); ++step) {
    if (std::isfinite(training.losses[step])) continue;
    throw RunError("the loss of step " + std::to_string(step) +
                   " is not a finite number; a smaller --learning-rate may help");
  }
}

}  // namespace

OperatorGraph on_one_rank(OperatorGraph graph) {
  graph.meshes = {{"one", {.shape = {1}, .dim_names = {"one"}, .ranks = {0}}}};
  for (spmd::GraphTensor& tensor : graph.tensors) tensor.annotation = {};
  for (spmd::GraphOperator& one : graph.operators) one.annotation = {};
  graph.optimizer.sharding_stage = 0;
  if (graph.pipeline) graph.pipeline->vpp_degree = 1;
  return completed(graph).graph;
}

namespace {

/// What a training leaves.
struct GraphSave {
  const std::optional<std::filesystem::path>& folder;  // none: nothing
  StateDescription description;
};

/// How the parameters and the optimizer's states lie after so many steps.
StateDescription description_of(const OperatorGraph& graph, const TrainingSteps& steps, int step) {
  StateDescription description{.step = step, .arrays = {}};
  const auto add = [&](std::string_view kind, std::size_t at) {
    const TrainingArray& array = steps.arrays[at];
    const spmd::GraphTensor& tensor = graph.tensors[array.tensor];
    description.arrays.push_back({saved_name(kind, tensor.name),
                                  tensor.shape,
                                  {graph.meshes[array.mesh].mesh, array.layout}});
  };
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    if (graph.tensors[at].role == spmd::TensorRole::Parameter) add(kSavedValue, steps.lying[at]);
  }
  for (const TrainingStep& one : steps.steps) {
    if (one.kind != TrainingStep::Kind::Update) continue;
    for (const std::string_view state : states_of(graph.optimizer.kind)) add(state, *one.inputs[0]);
  }
  return description;
}

GraphTraining joined(const OperatorGraph& graph, const std::map<int, RankOutcome>& outcomes) {
  GraphTraining training;
  for (const auto& [rank, one] : outcomes) {
    training.spans[rank] = one.spans;
    if (training.losses.empty()) training.losses = one.losses;
    training.step_ns.resize(one.step_ns.size());
    for (std::size_t step = 0; step < one.step_ns.size(); ++step) {
      training.step_ns[step] = std::max(training.step_ns[step], one.step_ns[step]);
    }
    training.memory = most_of(training.memory, one.memory);
    training.bytes_read = std::max(training.bytes_read, one.bytes_read);
    for (const auto& [tensor, part] : one.parameters) {
      const spmd::GraphTensor& whole = graph.tensors[tensor];
      put(part, whole.shape, training.parameters[whole.name]);
    }
    for (const auto& [tensor, part] : one.first_gradients) {
      const spmd::GraphTensor& whole = graph.tensors[tensor];
      put(part, whole.shape, training.gradients[whole.name]);
    }
  }
  require_finite(training);
  return training;
}

/// All ranks as threads of this process.
GraphTraining trained_in_threads(GraphJob job, GraphSave save) {
  ThreadMail mail(ranks_of(job.graph));
  job.mail = &mail;
  auto groups = groups_by_rank(wanted_groups(job.graph, job.steps));
  std::map<int, std::unique_ptr<RankOfGraph>> ranks;
  for (const int rank : ranks_of(job.graph)) {
    ranks[rank] = std::make_unique<RankOfGraph>(job, rank, std::move(groups[rank]));
  }
  run_all(ranks, mail);
  std::map<int, RankOutcome> outcomes;
  for (const auto& [rank, one] : ranks) outcomes[rank] = one->outcome();
  GraphTraining training = joined(job.graph, outcomes);
  if (!save.folder) return training;
  save.description.save = begin_saving(*save.folder);
  for (const auto& [rank, one] : ranks) {
    write_parts(*save.folder, save.description, rank, one->to_be_saved());
  }
  finish_saving(*save.folder, save.description);
  return training;
}

/// One rank here, the others in other processes.
GraphTraining trained_in_process(GraphJob job, GraphSave save, const GraphProcess& process) {
  ProcessMail mail(process.post);
  job.mail = &mail;
  RankOfGraph rank(job, process.process,
                   groups_of_process(wanted_groups(job.graph, job.steps), process));
  rank.train();
  RankOutcome own = rank.outcome();
  for (auto* spans : {&own.spans.actions, &own.spans.parts}) {
    for (ActionSpan& span : *spans) {
      span.begin_ns += process.clock_offset_ns;
      span.end_ns += process.clock_offset_ns;
    }
  }
  std::map<int, RankOutcome> outcomes;
  for (const std::string& bytes : process.share(to_bytes(own))) {
    const int from = static_cast<int>(outcomes.size());
    outcomes[from] = outcome_of(bytes);
  }
  GraphTraining training = joined(job.graph, outcomes);
  if (!save.folder) return training;
  // Nobody writes before process 0 has numbered the save, or ends before all have written.
  const std::string number = process.process == 0 ? std::to_string(begin_saving(*save.folder)) : "";
  save.description.save = number_of_word<int>(process.share(number).front()).value_or(0);
  write_parts(*save.folder, save.description, process.process, rank.to_be_saved());
  static_cast<void>(process.share(""));
  if (process.process == 0) finish_saving(*save.folder, save.description);
  return training;
}

}  // namespace

int processes_of(const OperatorGraph& graph) { return ranks_of(graph).back() + 1; }

void require_trainable(const OperatorGraph& graph, const TrainingSteps& steps,
                       const GraphTrainingOptions& options) {
  require_runnable(graph, steps, options.functions);
  if (options.schedule) require_micro_batches(graph, steps, options.schedule->micro_batches);
}

GraphTraining train_graph(const OperatorGraph& graph, const TrainingSteps& steps,
                          const GraphTrainingOptions& options, const GraphProcess* process) {
  require_trainable(graph, steps, options);
  GraphJob job{.graph = graph,
               .steps = steps,
               .functions = options.functions,
               .training_steps = options.steps,
               .last_uses = last_uses(graph, steps)};
  std::optional<spmd::PipelineSteps> pipeline;
  if (options.schedule) {
    pipeline = pipeline_steps(graph, options.schedule->stages, steps);
    job.schedule = &*options.schedule;
    job.pipeline = &*pipeline;
  }
  const auto producers = producers_of(graph);
  for (std::size_t at = 0; at < graph.tensors.size(); ++at) {
    job.first_values.push_back(producers[at] ? std::vector<std::vector<float>>()
                                             : first_values(graph, at, options));
  }
  const auto from = options.load ? std::optional(SavedState(*options.load)) : std::nullopt;
  if (from) job.from = &*from;
  const int done = from ? from->step() : 0;
  const GraphSave save{options.save, description_of(graph, steps, done + options.steps)};
  return process == nullptr ? trained_in_threads(job, save)
                            : trained_in_process(job, save, *process);
}

ArrayDifference difference(const std::vector<float>& one, const std::vector<float>& other) {
  ArrayDifference result;
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(one[i]) - static_cast<double>(other[i])));
    largest = std::max(
        {largest, std::abs(static_cast<double>(one[i])), std::abs(static_cast<double>(other[i]))});
    result.same_bits = result.same_bits && std::memcmp(&one[i], &other[i], sizeof(float)) == 0;
  }
  result.relative = largest == 0 ? 0 : most / largest;
  return result;
}

}  // namespace pipewright::exec::graphs
