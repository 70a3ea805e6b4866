// Dumps from files.
#pragma once

#include <string>
#include <vector>

#include "sim/dumps/dump.hpp"

namespace pipewright::sim {

/// `paths` are files, or folders, of which the dumps are taken and other files are not. Throws
/// InputError for a folder without any, and as read_dump().
std::vector<Dump> read_dump_files(const std::vector<std::string>& paths);

}  // namespace pipewright::sim
