// The manual page and the reference part of docs/cli.md, made from the tables of
// tools/cli/command.hpp. A test holds the files in docs/ equal to these texts.
#pragma once

#include <string>

namespace pipewright::tools {

/// pipewright.1, in man(7) macros.
std::string manual_page();
/// Every sub-command and flag, in Markdown.
std::string markdown_reference();

}  // namespace pipewright::tools
