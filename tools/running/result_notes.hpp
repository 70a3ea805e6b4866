// What run and tune have printed with --json, read back for a page.
#pragma once

#include <string>

#include "traces/page/page.hpp"

namespace pipewright::tools {

/// True for a file of the schema pipewright.result.
bool is_result(const std::string& path);

/// Of a run its outcome, its losses and whether it agreed with a serial run; of a search its ranked
/// table. Throws InputError for a result that has none of these.
traces::PageNotes read_result_notes(const std::string& path);

}  // namespace pipewright::tools
