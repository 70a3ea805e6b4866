// A plan in the files of other tools. One table of formats; one file a format. Pure functions: any
// number of threads may call them.
//
// A format writes what its tool can do and says the rest: a `refusal` where the tool cannot do what
// the plan does (another schedule, another way to divide the model), a `note` where the reader has
// something to add or to know. Nothing is left out without one of the two. Where there is a refusal
// the text is empty.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"
#include "planner/export/pytorch_actions.hpp"

namespace pipewright::planner {

struct ExportedPlan {
  std::string text;                   // ends with a newline
  std::vector<std::string> notes;     // sentences
  std::vector<std::string> refusals;  // sentences
};

struct ExportFormat {
  std::string_view name;     // "megatron"
  std::string_view tool;     // and the newest version that was looked at
  std::string_view summary;  // what is written
  ExportedPlan (*write)(const Plan&);
};

std::span<const ExportFormat> export_formats();
/// By name. Throws InputError with a suggestion.
const ExportFormat& find_export_format(std::string_view name);

// The entries of the table.
/// The computations alone; where the order has more than these, every action of that release.
ExportedPlan export_pytorch_csv(const Plan& plan, TorchRelease release);
ExportedPlan export_megatron(const Plan& plan);
ExportedPlan export_torchtitan(const Plan& plan);
ExportedPlan export_paddle(const Plan& plan);
ExportedPlan export_paddle_tuner(const Plan& plan);
ExportedPlan export_deepspeed(const Plan& plan);

}  // namespace pipewright::planner
