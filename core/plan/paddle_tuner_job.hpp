// The job file of PaddlePaddle's auto tuner (python -m paddle.distributed.launch --auto_tuner_json;
// distributed/auto_tuner) as a job.json of ours. Pure functions.
//
// What is left out is 1, or off, as Paddle's tuner has it. Paddle counts replicas as dp_degree *
// sharding_degree; here replicas are either all sharded or not at all, so dp_degree is what the two
// make together and sharding_stage 0 stands for "not sharded".
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright {

struct PaddleTunerJob {
  Json job;                        // schema pipewright.job/1
  std::vector<std::string> notes;  // what was assumed, and fields that mean nothing here
};

/// Such a file has "model_cfg" and no schema.
bool is_paddle_tuner_job(const JsonCursor& document);

/// Besides Paddle's fields it may have "cluster" (a preset, a path, an object), tuner_load_path,
/// tuner_save_path and tuner_run_mode, as a job of ours. Throws InputError at the field: unknown
/// ones, values of the wrong kind, and fields that would change what is searched and have no
/// counterpart (invalid_strategy, custom_search_dim, refined_recompute).
PaddleTunerJob read_paddle_tuner_job(const JsonCursor& document);

}  // namespace pipewright
