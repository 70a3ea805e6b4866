// job.json: what the user wants trained where. Paddle's field names are
// accepted as they are (docs/cli.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/cluster/cluster.hpp"
#include "core/model/architecture.hpp"
#include "core/model/model.hpp"
#include "core/plan/framework.hpp"
#include "core/plan/measured_steps.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

inline constexpr int kMostGlobalBatch = 1 << 30;  // samples of a step

enum class TunerRunMode : std::uint8_t { TunerAndRun, TunerOnly, RunOnly };
enum class AutoMode : std::uint8_t { Full, Semi };

/// A field of the strategy: "auto" (empty), a value, or the values to try.
using Choice = std::vector<std::string>;

struct Strategy {
  Choice pp_degree, dp_degree, vpp_degree, accumulate_steps, micro_batch_size, schedule_mode;
  /// Ranks of each stage, of schedules whose stages have replicas (1f1b-rr); empty: open.
  std::vector<std::vector<int>> stage_replicas;
  std::optional<CommPolicy> policy;  // "comm_policy": a preset's name or its fields
  Bytes memory_limit;                // per rank; 0: the device's
  int sharding_degree = 1;           // replicas that divide one another's state; 1: none do
  int unshard_lookahead = 0;         // stages whose weights are gathered before their turn
  Choice recompute;  // "none", "selective", "full", "by_stage": each stage the least that fits
  Choice mp_degree, ep_degree;         // tensor and expert parallel
  Choice expert_tensor_parallel_size;  // ranks that divide each expert, 1 or as many as mp_degree
  Choice use_sequence_parallel;        // "true", "false"
  // "auto" was written: else a job that is planned layer by layer does what its training says, and
  // divides nothing.
  bool opens_recompute = false, opens_mp_degree = false, opens_ep_degree = false,
       opens_cp_degree = false, opens_sequence_parallel = false,
       opens_expert_tensor_parallel_size = false, opens_cp_comm_type = false;
  Choice sharding_stage;
  // Only of jobs that are estimated (estimated_architecture()):
  Choice cp_degree;
  Choice cp_comm_type;  // "all_gather", "p2p"
  Choice rank_order;    // "tp-cp-dp-pp", "tp-cp-pp-dp": what varies fastest first
  Choice node_order;    // "file", or an order of the kinds of nodes (core/cluster/node_order.hpp)
  bool overlap_grad_reduce = false;
  FrameworkTraits framework = megatron_core();  // whose kernels and memory are estimated
  std::string matmul_dtype;                     // of products with weights: "fp8"; empty: 16 bits
  std::string grad_accum_dtype;  // "float32", "bfloat16", "float16"; empty: the framework's
};

struct Job {
  Model model;
  std::optional<Architecture> architecture;  // what `model` was made of, where it was given so
  /// The input does not say how many bytes a transformer's numbers have: 2 are assumed
  /// (read_job()).
  bool assumes_16_bits = false;
  Cluster cluster;
  int global_batch = 0;
  /// How many times as long as the model says each sample of a step takes, in the order of the
  /// batch (docs/plan-format.md); empty: all are alike.
  std::vector<double> sample_scales;
  /// Of each sample of a step; a profile turns them into sample_scales (settle_costing()).
  std::vector<int> sample_lengths;
  Strategy strategy;
  AutoMode auto_mode = AutoMode::Full;
  std::string tuner_load_path,
      tuner_save_path;  // relative to the job file's folder
  TunerRunMode tuner_run_mode = TunerRunMode::TunerAndRun;
  bool has_run_mode = false;                 // tuner_run_mode was said, not assumed
  std::string profile_path;                  // measured costs; empty: from the model's flops and
                                             // the device's rate
  std::vector<MeasuredStep> measured_steps;  // what an estimate is fitted to
  TrainingSpec training;
  std::vector<std::string> notes;  // what reading another tool's file has assumed
};

/// "model" and "cluster" may be an object, a preset's name, or the path of a file. A transformer
/// without bytes_per_element, on GPUs and without a profile, gets numbers of 16 bits, as is usual
/// on GPUs.
Job read_job(const JsonCursor& document);
/// A job.json, or a job of Paddle's auto tuner (core/plan/paddle_tuner_job.hpp).
Job load_job(const std::string& path);
Json to_json(const Job& job);

/// Where 16 bits were assumed, goes back to 4 bytes, which is what our own executor measures with.
void forget_assumed_16_bits(Job& job);

/// The transformer whose times and memory are estimated from its widths (planner/estimate/): 16-bit
/// numbers on GPUs, without a profile. Others are planned layer by layer: nullopt.
std::optional<Architecture> estimated_architecture(const Job& job);

/// The plan that tuner_load_path names. A path that is missing, a broken file,
/// or a plan made for another cluster or model is an error that says why:
/// InputError for the file, MachineError for another cluster (both sides
/// shown).
Plan load_tuned_plan(const Job& job);

}  // namespace pipewright
