#include "tools/running/data_flags.hpp"

#include <utility>

#include "core/base/error.hpp"

namespace pipewright::tools {

std::vector<Flag> data_flags(std::string_view group, std::string_view help) {
  return {{.group = group, .name = "--data", .argument = "FILE", .help = help, .is_file = true},
          {.group = group,
           .name = "--labels",
           .argument = "FILE",
           .help = "the inputs' classes, as an array of whole numbers (.npy)",
           .is_file = true},
          {.group = group,
           .name = "--targets",
           .argument = "FILE",
           .help = "what a model with the loss mse has to give for the inputs (.npy)",
           .is_file = true}};
}

std::optional<exec::DataFiles> data_request(const Arguments& arguments) {
  exec::DataFiles files{arguments.text_or("--data", ""), arguments.text_or("--labels", ""),
                        arguments.text_or("--targets", "")};
  const bool has_answers = !files.labels.empty() || !files.targets.empty();
  if (has_answers && !files.data.ends_with(".npy")) {
    throw InputError("--labels and --targets belong to --data FILE.npy, the inputs");
  }
  if (!files.labels.empty() && !files.targets.empty()) {
    throw InputError("--labels and --targets: give one of the two, as the model's loss asks");
  }
  return files.data.empty() ? std::nullopt : std::optional(std::move(files));
}

}  // namespace pipewright::tools
