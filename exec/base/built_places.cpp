#include "exec/base/built_places.hpp"

namespace pipewright::exec {

const char* const kBuiltBlasLibrary = PIPEWRIGHT_BLAS_LIBRARY;
const char* const kBuiltMpiModule = PIPEWRIGHT_MPI_MODULE;
const char* const kBuiltCudaModule = PIPEWRIGHT_CUDA_MODULE;

}  // namespace pipewright::exec
