// What this executable was built from, for doctor and bug reports.
#pragma once

#include <string>

namespace pipewright::tools {

struct BuildFacts {
  std::string version;   // of Pipewright
  std::string compiler;  // "g++ 12.2.0, release"
  bool has_blas = false;
  std::string blas;  // what OpenBLAS says of itself, or why it cannot be loaded
};

BuildFacts build_facts();

}  // namespace pipewright::tools
