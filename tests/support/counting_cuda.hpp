// The table of exec/devices/cuda/module_api.h that does nothing but count what it is asked for, so
// that models of any size can be asked what a GPU would be given for them. Memory is never touched,
// but for what copies_bring() says. Any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/devices/cuda/module_api.h"

namespace pipewright::tests {

struct Launch {
  enum class Kind : unsigned char { Kernel, Product, Copy, Clear };
  Kind kind = Kind::Kernel;
  std::string what;         // of a kernel: the mangled name of what it does for an element or a row
  std::size_t threads = 0;  // of a kernel
  std::size_t work = 0;     // numbers that it reads or writes; of a clear bytes
};

/// One GPU of 132 SMs.
const pipewright_cuda& counting_cuda();
/// Copies of as many bytes bring these words: what a host waits for, to say what comes next.
void copies_bring(std::vector<std::int32_t> words);
/// All since the last call.
std::vector<Launch> take_launches();

}  // namespace pipewright::tests
