// A completed operator graph trained by ranks that are threads or processes: each has its parts of
// the tensors and walks the graph's training steps (core/spmd/graph/training_steps); parts meet in
// collectives (exec/collectives). Tensors that no operator makes are drawn from a seed by their
// names, so that every division of a graph, and the graph on one rank, begin alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "core/spmd/graph/step_memory.hpp"
#include "exec/collectives/group.hpp"
#include "exec/spmd/graph_schedule.hpp"
#include "exec/spmd/local_operators.hpp"
#include "exec/spmd/rank_outcome.hpp"
#include "exec/spmd/stage_mail.hpp"

namespace pipewright::exec::graphs {

struct GraphTrainingOptions {
  int steps = 3;
  std::uint64_t seed = 1;
  /// By tensor's name, whole: what they begin with, instead of what is drawn. Of data for all
  /// micro-batches, one behind the other, or for one, which they all have.
  std::map<std::string, std::vector<float>> values = {};
  LocalFunctions functions = {};  // of operators of the rule local_map
  /// Folders of saved states (exec/spmd/saved_state.hpp): what it goes on from, and what it leaves.
  std::optional<std::filesystem::path> load = {}, save = {};
  /// Each step trains so many micro-batches, in this order; the loss is the mean of theirs.
  std::optional<GraphSchedule> schedule = {};
};

inline constexpr int kMostGraphRanks = 64;
inline constexpr std::int64_t kMostGraphElements = std::int64_t{1} << 24;  // of a tensor

struct GraphTraining {
  std::vector<double> losses;         // by step, before its update
  std::vector<std::int64_t> step_ns;  // by step, of the rank that took longest
  /// By the parameter's name, whole: its gradient in the first step, and what it is in the end.
  std::map<std::string, std::vector<float>> gradients = {}, parameters = {};
  std::map<int, RankSpans> spans = {};  // by rank, of the last step of a schedule
  spmd::StepMemory memory = {};         // of the arrays as they were held
  std::int64_t bytes_read = 0;          // of a saved state, by the rank that read most
};

/// The same tensors and operators on one rank, with no annotation but that, and no chunks.
spmd::OperatorGraph on_one_rank(spmd::OperatorGraph graph);

/// A process of a job that has one rank of the graph, the one with its number.
struct GraphProcess {
  int process = 0;
  /// Of these ranks; null where this one is not among them. All processes ask for the same ones.
  std::function<std::unique_ptr<collectives::Group>(std::span<const RankId>)> group = {};
  /// The texts of all processes, by process; each calls it equally often.
  std::function<std::vector<std::string>(const std::string&)> share = {};
  ProcessPost post = {};             // between the stages of a pipeline
  std::int64_t clock_offset_ns = 0;  // to be added to this steady clock for that of process 0
};
/// As many as have to be started: one more than the highest rank.
int processes_of(const spmd::OperatorGraph& graph);

/// Throws InputError: an operator that is not computed here, more ranks, elements or micro-batches
/// than these bounds.
void require_trainable(const spmd::OperatorGraph& completed, const spmd::TrainingSteps& steps,
                       const GraphTrainingOptions& options);
/// With the graph's optimizer; in threads, unless this is a process of a job. Throws as
/// require_trainable(); RunError: a value that is not finite.
/// A schedule is of the stages of `completed`, and `steps` are in their order.
GraphTraining train_graph(const spmd::OperatorGraph& completed, const spmd::TrainingSteps& steps,
                          const GraphTrainingOptions& options,
                          const GraphProcess* process = nullptr);

/// How far two arrays are apart, of the largest magnitude in either.
struct ArrayDifference {
  double relative = 0;
  bool same_bits = true;
};
ArrayDifference difference(const std::vector<float>& one, const std::vector<float>& other);

}  // namespace pipewright::exec::graphs
