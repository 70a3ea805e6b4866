// The configurations that the tuner looks at: what the job leaves open, and what it fixes. A mesh
// says what is parallel and how the batch is cut (ConfigurationCosts::for_each_mesh); on each mesh
// several schedules and cuts of the layers are tried. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/plan/job.hpp"
#include "planner/configurations/costs.hpp"
#include "planner/schedules/registry.hpp"

namespace pipewright::planner {

/// A schedule on a mesh, with the number of stages a rank holds.
struct Shape {
  const Schedule* schedule = nullptr;
  int chunks = 1;
  Placement placement;  // a stage with replicas: the rank of its first micro-batch
  /// Ranks of each stage where the schedule has such stages (Layout::Replicas); empty there: the
  /// best for as many stages as `placement` has (ReplicatedStages::best_replicas()).
  std::vector<int> stage_replicas = {};
};

struct Configuration {
  const Schedule* schedule = nullptr;
  ParallelSetup parallel;  // with chunks
  /// How the layers are cut: by cost (the default), or into equal numbers of layers.
  bool even_layers = false;
  /// Instead, where ranks that differ have several stages: even by rank (rank_evened()).
  bool rank_evened = false;
};

/// Meshes by what they are tried for. A field for which the job gives values takes only these, in
/// both auto modes: a value the user wrote is never ignored.
struct SearchSpace {
  std::vector<ParallelSetup> meshes;           // that the job allows
  std::vector<ParallelSetup> only_to_compare;  // of one pipeline rank, which the job rules out
  LeftOutTally left_out;                       // before anything was simulated
};

/// Throws InputError for a value that is not a positive number or a schedule that does not exist.
SearchSpace search_space(const Job& job, const ConfigurationCosts& costs);

/// The shapes to try on a mesh. Open fields:
///   vpp_degree     1, or 2, 4, 8 … for schedules with chunks
///   schedule_mode  every synchronous registry entry without a policy of its own and with loop
///                  placement, and where the job is estimated, with V placement too; the others
///                  where they are named
///   stage_replicas every number of ranks of each stage that the micro-batches allow (where there
///                  are many: for each number of stages the best), for schedules that have them
/// On one rank all schedules compute what naive computes. Unless some are named, naive is tried
/// instead: with replicas, and where the job is estimated; else it is the baseline's row.
class ShapeChoices {
 public:
  ShapeChoices(const Job& job, bool is_estimated);

  struct Shapes {
    std::vector<Shape> list;
    LeftOutTally left_out;

    /// Counts what the schedule cannot do.
    void refuse(const Schedule& schedule, const std::string& reason);
  };
  /// Depends on the mesh's pipeline ranks, its micro-batches and whether it has replicas.
  Shapes on(const ParallelSetup& mesh) const;
  /// Schedule naive; nullopt where it is not possible.
  std::optional<Shape> baseline_on(const ParallelSetup& mesh) const;
  /// Whether some schedule that is tried hides messages inside stages.
  bool may_overlap() const;
  /// Whether the job lets the baseline be a plan.
  bool allows_baseline() const;

 private:
  std::vector<const Schedule*> schedules_for(int ranks, bool has_other_devices) const;
  std::vector<int> chunks_for(const Schedule& schedule, int ranks) const;
  void add_replicated(const Schedule& schedule, const ParallelSetup& mesh, Shapes& shapes) const;

  int layers_;
  bool is_tied_, clips_, is_estimated_, divides_stages_;
  std::vector<int> chunks_asked_;
  std::vector<std::vector<int>> replicas_asked_;
  std::vector<const Schedule*> asked_;
};

}  // namespace pipewright::planner
