// What the demo trains on where the user gives nothing: Pipewright's own documents.
#pragma once

#include <string>

namespace pipewright::tools {

/// The documents of the source tree this was built from, or of the installation, one after the
/// other. Throws InputError if neither is there.
std::string own_documents();

}  // namespace pipewright::tools
