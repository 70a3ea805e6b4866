#include "tools/input/checkpoint_flags.hpp"

#include "core/base/error.hpp"

namespace pipewright::tools {
namespace {

constexpr int kMostCheckpointSteps = 1'000'000'000;

}  // namespace

std::vector<Flag> checkpoint_flags() {
  return {
      {.group = "Checkpoints",
       .name = "--save-checkpoint",
       .argument = "FOLDER",
       .help = "save weights and optimizer after the last step, in a folder of the step in FOLDER",
       .is_file = true,
       .writes = Writes::Folder},
      {.group = "Checkpoints",
       .name = "--checkpoint-every",
       .argument = "N",
       .help = "and after every N steps"},
      {.group = "Checkpoints",
       .name = "--keep-checkpoints",
       .argument = "N",
       .help = "remove all but the newest N when one is finished"},
      {.group = "Checkpoints",
       .name = "--load-checkpoint",
       .argument = "FOLDER",
       .help = "go on from the newest checkpoint in FOLDER, also under another plan of the same "
               "model; --steps counts those before it too",
       .is_file = true},
  };
}

CheckpointRequest checkpoint_request(const Arguments& arguments) {
  CheckpointRequest request;
  if (const auto folder = arguments.text("--save-checkpoint")) {
    request.save = exec::CheckpointSpec{.folder = *folder,
                                        .every = static_cast<int>(arguments.integer_or(
                                            "--checkpoint-every", 1, kMostCheckpointSteps, 0)),
                                        .keep = static_cast<int>(arguments.integer_or(
                                            "--keep-checkpoints", 1, kMostCheckpointSteps, 0)),
                                        .watch = {}};
  } else if (arguments.has("--checkpoint-every") || arguments.has("--keep-checkpoints")) {
    throw InputError("--checkpoint-every and --keep-checkpoints belong to --save-checkpoint");
  }
  request.load = arguments.text("--load-checkpoint");
  return request;
}

std::string last_periodic_checkpoint(const CheckpointRequest& request,
                                     const exec::RunResult& diverged) {
  if (!request.save || request.save->every == 0) return "";
  const int finite = diverged.first_step + static_cast<int>(diverged.steps.size()) - 1;
  const int last = finite / request.save->every * request.save->every;
  if (last <= diverged.first_step) return "";
  return exec::checkpoint_folder(request.save->folder, last).string();
}

}  // namespace pipewright::tools
