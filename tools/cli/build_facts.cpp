#include "tools/cli/build_facts.hpp"

#include "core/base/error.hpp"
#include "exec/devices/cpu/kernels/blas.hpp"

namespace pipewright::tools {
BuildFacts build_facts() {
  BuildFacts facts;
  facts.version = PIPEWRIGHT_VERSION;
#if defined(__clang__)
  facts.compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  facts.compiler = "g++ " __VERSION__;
#else
  facts.compiler = "unknown compiler";
#endif
#if defined(__OPTIMIZE__)
  facts.compiler += ", optimised";
#else
  facts.compiler += ", not optimised";
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  facts.compiler += ", with sanitizers";
#endif
  try {
    facts.blas = exec::cpu::blas_description();
    facts.has_blas = true;
  } catch (const MachineError& error) {
    facts.blas = error.what();
  }
  return facts;
}

}  // namespace pipewright::tools
