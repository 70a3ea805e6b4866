#include "exec/devices/cpu/kernels/blas.hpp"

#include <cblas.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <mutex>
#include <vector>

#include "core/base/error.hpp"
#include "exec/base/built_places.hpp"
#include "exec/base/module_file.hpp"

namespace pipewright::exec::cpu {
namespace {

struct Library {
  decltype(&cblas_sgemm) sgemm = nullptr;
  /// The sequential build gives out its work buffers without a lock: ranks that multiply at once
  /// may get the same buffer and compute nonsense. With it they take turns.
  bool takes_turns = false;
  std::string description;
};

/// In the builds for Python packages every name has a prefix.
template <class Function>
Function symbol(void* library, const std::string& name) {
  void* found = dlsym(library, name.c_str());
  if (found == nullptr) found = dlsym(library, ("scipy_" + name).c_str());
  if (found == nullptr) throw MachineError("the BLAS library has no " + name);
  return reinterpret_cast<Function>(found);
}

// Of OpenBLAS 0.3: the library and what it loads, and the work buffer of each thread in it. Where
// there is no room for that buffer it asks for it again and again, for ever.
constexpr std::size_t kLibraryBytes = std::size_t{48} << 20, kBufferBytes = std::size_t{128} << 20;

/// Whether this process can map so many pieces more.
bool has_room(std::size_t pieces, std::size_t bytes) {
  std::vector<void*> mapped;
  for (std::size_t i = 0; i < pieces; ++i) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) break;
    mapped.push_back(at);
  }
  for (void* at : mapped) munmap(at, bytes);
  return mapped.size() == pieces;
}

[[noreturn]] void refuse_room() {
  throw MachineError(
      "not enough memory to train: OpenBLAS takes 48 MiB and 128 MiB more for each rank in a "
      "process; raise the limit (ulimit -v), or use fewer ranks");
}

/// What to try in turn: the one that came with the command (in a wheel), the one that the build
/// found, the system's.
std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& place : installed_places("libscipy_openblas.so")) result.push_back(place);
  for (const char* name : {kBuiltBlasLibrary, "libopenblas.so.0", "libopenblas.so"}) {
    if (*name != '\0') result.emplace_back(name);  // dlopen("") is the command itself
  }
  return result;
}

Library load() {
  if (!has_room(1, kLibraryBytes)) refuse_room();
  void* library = nullptr;
  for (const std::string& name : names()) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    throw MachineError(
        "training needs OpenBLAS, and libopenblas.so.0 cannot be loaded here; install "
        "libopenblas0-pthread");
  }
  // A rank is one thread on one core: the library's own threads would disturb the others.
  symbol<decltype(&openblas_set_num_threads)>(library, "openblas_set_num_threads")(1);
  using Parallel = decltype(&openblas_get_parallel);
  const int parallel = symbol<Parallel>(library, "openblas_get_parallel")();
  using Config = decltype(&openblas_get_config);
  return {.sgemm = symbol<decltype(&cblas_sgemm)>(library, "cblas_sgemm"),
          .takes_turns = parallel == OPENBLAS_SEQUENTIAL,
          .description = symbol<Config>(library, "openblas_get_config")()};
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

CBLAS_TRANSPOSE transposed(bool yes) { return yes ? CblasTrans : CblasNoTrans; }

}  // namespace

void sgemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a,
           int a_stride, const float* b, int b_stride, float beta, float* c, int c_stride) {
  static std::mutex turn;
  const Library& blas = library();
  thread_local bool is_first = true;
  if (is_first && !has_room(1, kBufferBytes)) refuse_room();
  is_first = false;
  const auto held = blas.takes_turns ? std::unique_lock(turn) : std::unique_lock<std::mutex>();
  blas.sgemm(CblasRowMajor, transposed(transpose_a), transposed(transpose_b), m, n, k, alpha, a,
             a_stride, b, b_stride, beta, c, c_stride);
}

void require_blas_memory(std::size_t threads) {
  if (!has_room(threads, kBufferBytes)) refuse_room();
}

std::string blas_description() { return library().description; }

}  // namespace pipewright::exec::cpu
