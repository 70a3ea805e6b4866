// What pipewright.torch asks of the libraries: how a release sends, and what its runtime is given.
#include "core/base/error.hpp"
#include "planner/export/pytorch_actions.hpp"
#include "planner/export/pytorch_single.hpp"
#include "planner/schedules/requested.hpp"
#include "python/bindings.hpp"
#include "sim/torch_group.hpp"

namespace pipewright::python {
namespace {

planner::TorchRelease release_of(const std::string& version) {
  return planner::lists_of(sim::known_torch_version(version));
}

std::string preset_of(const std::string& release, const std::string& backend, bool eager,
                      bool per_direction, bool per_edge) {
  return std::string(sim::torch_preset({release, backend, eager, per_direction, per_edge}));
}

GivenOrder single_list(const std::string& schedule_class, int ranks, int micro_batches) {
  GivenOrder given;
  given.order = planner::torch_single_list(schedule_class, ranks, micro_batches);
  given.title = planner::title_of(given.order, schedule_class);
  return given;
}

/// The file and its format.
std::pair<std::string, std::string> file_for(const GivenOrder& given, const std::string& release) {
  const planner::TorchRelease lists = release_of(release);
  if (!given.problems.empty()) throw InputError(given.title + ": " + given.problems.front());
  if (const auto refusal = planner::torch_training_refusal_of(given.order))
    throw InputError(given.title + ": " + *refusal);
  planner::TorchFile file = planner::torch_file(given.order, lists);
  return {std::move(file.csv), std::string(file.format)};
}

}  // namespace

void bind_pytorch(nb::module_& module) {
  module.def("torch_preset", preset_of, nb::arg("release"), nb::arg("backend"),
             nb::arg("eager") = false, nb::arg("per_direction") = false,
             nb::arg("per_edge") = false,
             "The policy under which a release of PyTorch sends over a group of a pipeline's "
             "stages, by its name.");
  module.def("torch_single_list", single_list, nb::arg("schedule_class"), nb::arg("ranks"),
             nb::arg("micro_batches"),
             "Every action of a schedule of PyTorch that keeps no list: Schedule1F1B, "
             "ScheduleGPipe.");
  module.def("torch_file", file_for, nb::arg("order"), nb::arg("release"),
             "What _load_csv() of a release is given of an order, and the format in which.");
}

}  // namespace pipewright::python
