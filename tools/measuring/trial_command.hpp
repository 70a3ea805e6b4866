// The launch command of one configuration.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/plan/plan.hpp"
#include "planner/search/prospects.hpp"
#include "tools/measuring/command_template.hpp"

namespace pipewright::tools {

/// An empty folder for the plans and files of trials; it goes away with the object.
class TrialFolder {
 public:
  /// Throws MachineError.
  TrialFolder();
  ~TrialFolder();
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A command, or why there is none.
struct TrialCommand {
  std::string command;
  std::string refusal;  // of an export: a sentence
};

/// `plan` is of the same configuration; needed where the command asks for it.
TrialCommand command_of(const CommandTemplate& command, const planner::Prospect& prospect,
                        const std::optional<Plan>& plan, int global_batch,
                        const TrialFolder& folder);
/// Whether it asks for the plan, or for what is made of it.
bool needs_plan(const CommandTemplate& command);

}  // namespace pipewright::tools
