// Memory in large pages, where the system gives them only to those that ask.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

namespace pipewright {

/// Asks for large pages for an array that is about to be written for the first time: an array of
/// millions of entries costs more to get page by page than to fill. Nothing changes but the time.
void use_large_pages(void* begin, std::size_t bytes);

/// The same of a vector's capacity.
template <class T>
void use_large_pages(std::vector<T>& values) {
  use_large_pages(values.data(), values.capacity() * sizeof(T));
}
/// values.assign(), in large pages.
template <class T>
void assign_in_large_pages(std::vector<T>& values, std::size_t count, const T& value) {
  values.reserve(count);
  use_large_pages(values);
  values.assign(count, value);
}

/// Memory from the heap, in large pages.
std::pmr::memory_resource* large_page_memory();

}  // namespace pipewright
