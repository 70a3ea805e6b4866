// --save-checkpoint, --checkpoint-every, --keep-checkpoints and --load-checkpoint.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/checkpoint/checkpoint.hpp"
#include "exec/runtime/runtime.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/command.hpp"

namespace pipewright::tools {

struct CheckpointRequest {
  std::optional<exec::CheckpointSpec> save;
  std::optional<std::string> load;

  bool any() const { return save || load; }
};

std::vector<Flag> checkpoint_flags();
/// Throws InputError for values that are no counts, and for a flag without the one it belongs to.
CheckpointRequest checkpoint_request(const Arguments& arguments);

/// The folder of the last checkpoint that a diverged run has saved on its way; "" for none.
std::string last_periodic_checkpoint(const CheckpointRequest& request,
                                     const exec::RunResult& diverged);

}  // namespace pipewright::tools
