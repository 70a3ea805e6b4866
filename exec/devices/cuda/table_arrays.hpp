// How a table's functions name sizes and arrays (exec/devices/cuda/kernel_table.hpp).
#pragma once

#include <cstddef>

namespace pipewright::exec::cuda {

inline std::size_t count(int n) { return static_cast<std::size_t>(n); }
inline std::size_t count(int rows, int width) { return count(rows) * count(width); }

/// Arrays of the table's own numbers.
template <class T>
const T* in(const void* numbers) {
  return static_cast<const T*>(numbers);
}
template <class T>
T* out(void* numbers) {
  return static_cast<T*>(numbers);
}

}  // namespace pipewright::exec::cuda
