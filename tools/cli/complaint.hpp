// What the command says when something is thrown, and the status it ends with (docs/errors.md).
#pragma once

#include <exception>
#include <string>

namespace pipewright::tools {

struct Complaint {
  int status = 0;
  std::string text;
};

/// Of any exception that a sub-command throws.
Complaint complaint_of(const std::exception_ptr& thrown);

}  // namespace pipewright::tools
