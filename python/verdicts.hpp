// A verdict as Python holds it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/program/wait_for.hpp"

namespace pipewright::python {

struct VerdictObject {
  Json fields;  // verdict_fields()
  std::string policy, explanation;
  std::map<std::string, std::string> verdicts = {};  // by policy

  std::string word() const { return fields["verdict"].get<std::string>(); }
  bool ok() const { return word() == "ok"; }
};

VerdictObject verdict_on(const Program& program, const WaitReport& report,
                         const std::vector<std::string>& problems);

}  // namespace pipewright::python
