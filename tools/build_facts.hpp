// What this executable was built from, for doctor and bug reports.
#pragma once

#include <string>

namespace pipewright::tools {

struct BuildFacts {
  std::string version;   // of Pipewright
  std::string compiler;  // "g++ 12.2.0, release"
  std::string blas;      // what the loaded OpenBLAS says of itself
};

BuildFacts build_facts();

}  // namespace pipewright::tools
