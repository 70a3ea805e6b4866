#include "tools/build_facts.hpp"

#include <dlfcn.h>

namespace pipewright::tools {
namespace {

/// The exec library links OpenBLAS; asked by name, so that this file needs no BLAS header.
std::string blas_config() {
  using Config = char* (*)();
  void* found = dlsym(RTLD_DEFAULT, "openblas_get_config");
  if (found == nullptr) return "not OpenBLAS, or linked statically";
  return reinterpret_cast<Config>(found)();
}

}  // namespace

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
  facts.blas = blas_config();
  return facts;
}

}  // namespace pipewright::tools
