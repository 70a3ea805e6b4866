// For functions that the CPU's compiler and the GPU's both compile, so that there is one text of
// the arithmetic and a test on the CPU sees the bits that a GPU computes. Such functions call
// nothing that the two do not have alike: + - * / and sqrt of floats are correctly rounded on both,
// and the GPU's files are compiled without contraction (cmake/PipewrightCuda.cmake).
#pragma once

#if defined(__CUDACC__)
#define PIPEWRIGHT_HOST_DEVICE __host__ __device__
#else
#define PIPEWRIGHT_HOST_DEVICE
#endif
