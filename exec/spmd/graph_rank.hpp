// One rank of a graph in training: it has its parts of the tensors, and walks the graph's training
// steps with the others.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/spmd/graph/step_memory.hpp"
#include "exec/spmd/graph_schedule.hpp"
#include "exec/spmd/graph_updates.hpp"
#include "exec/spmd/local_operators.hpp"
#include "exec/spmd/moves.hpp"
#include "exec/spmd/rank_outcome.hpp"
#include "exec/spmd/saved_state.hpp"
#include "exec/spmd/stage_mail.hpp"
#include "exec/spmd/timed_group.hpp"

namespace pipewright::exec::graphs {

/// What all ranks share and only read.
struct GraphJob {
  const spmd::OperatorGraph& graph;
  const spmd::TrainingSteps& steps;
  const LocalFunctions& functions;
  int training_steps = 1;
  /// By tensor, none where an operator makes it; of data for each micro-batch.
  std::vector<std::vector<std::vector<float>>> first_values = {};
  std::vector<std::vector<std::size_t>> last_uses = {};  // of arrays, by step
  const SavedState* from = nullptr;                      // what it goes on from, if anything
  /// Where micro-batches go through the stages of a pipeline.
  const GraphSchedule* schedule = nullptr;
  const spmd::PipelineSteps* pipeline = nullptr;
  StageMail* mail = nullptr;
};

class RankOfGraph {
 public:
  RankOfGraph(const GraphJob& job, int rank, GroupsByRanks groups);

  void train();

  // After train().
  RankOutcome outcome() const;
  /// What this rank has of a saved state, by the names there.
  std::map<std::string, const LocalArray*> to_be_saved() const;
  const GroupsByRanks& groups() const { return groups_; }

 private:
  const std::optional<LocalArray>& lying(std::size_t tensor) const;
  spmd::Distribution distribution(const spmd::TrainingArray& array) const;
  std::optional<spmd::LocalPart> part_of(std::size_t at) const;
  void hold(std::size_t at, LocalArray array);
  void drop(std::size_t at);
  /// The array, zeros if it is not there yet; null where this rank has no part.
  LocalArray* there(const spmd::ArrayPlace& at);

  void begin();
  void begin_with(std::size_t tensor);
  void begin_states(const spmd::TrainingStep& update);
  /// The saved array's part in place of the values, where there is one to go on from.
  void load(std::string_view kind, std::size_t parameter, LocalArray& array);
  void walk_all();
  void walk(const spmd::TrainingStep& step);
  void move(const spmd::TrainingStep& step);
  void take(std::size_t to, LocalArray made);
  void update(const spmd::TrainingStep& step);
  /// As a part of an action of this kind: a backward, of a B, I or W.
  void compute(const spmd::TrainingStep& step, ActionKind kind = ActionKind::B);
  void seed_gradient(float value);
  /// An operator's computation as a part of an action.
  template <class Compute>
  void as_part(Compute compute);

  // With a schedule.
  std::size_t slot(std::size_t array) const;
  bool is_parameter(std::size_t array) const;
  bool stays(std::size_t array) const;
  void count_uses();
  void walk_schedule();
  void act(const Action& action);
  void go_forward(std::size_t stage);
  void go_back(std::size_t stage, ActionKind kind);
  void take_step(std::size_t at, ActionKind kind);
  void release(std::size_t array);
  using Added = std::vector<std::pair<std::size_t, LocalArray>>;  // to gradients of parameters
  void add_later(const spmd::TrainingStep& step, Added added);
  void end_backward(std::size_t stage);
  void send(std::size_t stage, bool is_gradient);
  void receive(const spmd::StageMessage& message);

  const GraphJob& job_;
  const spmd::OperatorGraph& graph_;
  const int rank_;
  PartSpans parts_;  // of the actions of a step
  GroupsByRanks groups_;
  int step_ = 0;
  std::size_t micro_batch_ = 0;
  std::vector<std::optional<LocalArray>> arrays_;  // by slot
  std::vector<int> uses_, uses_left_;              // by array, by slot
  bool splits_ = false;                            // some backward has its W apart
  std::size_t loss_stage_ = 0;
  std::vector<double> micro_batch_losses_;
  /// By stage and micro-batch what is still to be added, and by stage the next micro-batch: all are
  /// added in ascending order, whatever the schedule.
  std::map<std::pair<std::size_t, std::size_t>, Added> added_;
  std::vector<std::size_t> next_added_;
  std::map<std::size_t, PartStates> states_;  // by parameter, as the next
  std::map<std::size_t, LocalArray> first_gradients_;
  std::int64_t bytes_read_ = 0;
  std::vector<double> losses_;
  std::vector<std::int64_t> step_ns_;
  std::vector<ActionSpan> spans_;
  bool has_computed_ = false;  // in the last of these
  spmd::HeldMemory memory_;
};

}  // namespace pipewright::exec::graphs
