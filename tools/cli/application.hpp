// The whole command but for main(): words in, exit status out.
#pragma once

#include <string>
#include <vector>

namespace pipewright::tools {

/// Runs what the words ask for. Everything that goes wrong comes back as an exit status, with one
/// sentence on stderr; nothing is thrown.
int run_application(const std::vector<std::string>& words);

}  // namespace pipewright::tools
