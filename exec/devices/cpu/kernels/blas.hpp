// OpenBLAS, loaded when the first matrix product asks for it: the command's other work (simulate,
// check, tune) never pays for the library's threads, which cost it 30 ms of CPU time at each start.
#pragma once

#include <cstddef>
#include <string>

namespace pipewright::exec::cpu {

/// c = alpha · a · b + beta · c, row major, a and b transposed where asked; cblas_sgemm's arguments
/// in its order. Any thread. Throws MachineError if the library cannot be loaded, or its buffers
/// find no memory.
void sgemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float* a,
           int a_stride, const float* b, int b_stride, float beta, float* c, int c_stride);

/// Throws MachineError where there is no memory for so many threads to multiply at once.
void require_blas_memory(std::size_t threads);

/// What the library says of itself. Loads it; throws as sgemm() does.
std::string blas_description();

}  // namespace pipewright::exec::cpu
