// job.json: what the user wants trained where. Paddle's field names are
// accepted as they are (docs/cli.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/json.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"

namespace pipewright {

enum class TunerRunMode : std::uint8_t { TunerAndRun, TunerOnly, RunOnly };
enum class AutoMode : std::uint8_t { Full, Semi };

/// A field of the strategy: "auto" (empty), a value, or the values to try.
using Choice = std::vector<std::string>;

struct Strategy {
  Choice pp_degree, dp_degree, vpp_degree, accumulate_steps, micro_batch_size, schedule_mode;
  std::optional<CommPolicy> policy;  // "comm_policy": a preset's name or its fields
  Bytes memory_limit;                // per rank; 0: the device's
  int sharding_degree = 1;           // replicas that share the optimizer's state; 1: none do
};

struct Job {
  Model model;
  Cluster cluster;
  int global_batch = 0;
  Strategy strategy;
  AutoMode auto_mode = AutoMode::Full;
  std::string tuner_load_path,
      tuner_save_path;  // relative to the job file's folder
  TunerRunMode tuner_run_mode = TunerRunMode::TunerAndRun;
  std::string profile_path;  // measured costs; empty: from the model's flops and
                             // the device's rate
  TrainingSpec training;
};

/// "model" and "cluster" may be an object, a preset's name, or the path of a
/// file.
Job read_job(const JsonCursor& document);
Job load_job(const std::string& path);
Json to_json(const Job& job);

/// The plan that tuner_load_path names. A path that is missing, a broken file,
/// or a plan made for another cluster or model is an error that says why:
/// InputError for the file, MachineError for another cluster (both sides
/// shown).
Plan load_tuned_plan(const Job& job);

}  // namespace pipewright
