#include "core/base/large_pages.hpp"

#include <cstdint>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace pipewright {
namespace {

class LargePageMemory : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* const memory = ::operator new(bytes, std::align_val_t(alignment));
    use_large_pages(memory, bytes);
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t alignment) override {
    ::operator delete(memory, std::align_val_t(alignment));
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace

std::pmr::memory_resource* large_page_memory() {
  static LargePageMemory memory;
  return &memory;
}

void use_large_pages([[maybe_unused]] void* begin, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kLargePage = std::uintptr_t{1} << 21;
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (from + kLargePage - 1) / kLargePage * kLargePage;
  const std::uintptr_t end = (from + bytes) / kLargePage * kLargePage;
  // It is advice: where there are none, the array has ordinary pages.
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

}  // namespace pipewright
