# CUDA::cublas and CUDA::cublasLt where the toolkit came without cuBLAS: Python's packages have it (nvidia-cublas: nvidia/cu13 in
# site-packages, without an unversioned libcublas.so). CUBLAS_ROOT, in CMake or the environment, says where to look first,
# then PIPEWRIGHT_CUDA_TOOLCHAIN. Does nothing where FindCUDAToolkit has found it.

include_guard(GLOBAL)

if(NOT TARGET CUDA::cublas)
  set(_cublas_hints ${CUBLAS_ROOT} $ENV{CUBLAS_ROOT} ${PIPEWRIGHT_CUDA_TOOLCHAIN})
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
      OUTPUT_VARIABLE _cublas_packages
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND _cublas_hints "${_cublas_packages}/nvidia/cu${CUDAToolkit_VERSION_MAJOR}"
         "${_cublas_packages}/nvidia/cublas")
  endif()
  find_path(CUBLAS_INCLUDE_DIR cublas_v2.h HINTS ${_cublas_hints} PATH_SUFFIXES include)
  find_library(CUBLAS_LIBRARY NAMES cublas "libcublas.so.${CUDAToolkit_VERSION_MAJOR}" HINTS ${_cublas_hints}
               PATH_SUFFIXES lib lib64)
  find_library(CUBLASLT_LIBRARY NAMES cublasLt "libcublasLt.so.${CUDAToolkit_VERSION_MAJOR}" HINTS ${_cublas_hints}
               PATH_SUFFIXES lib lib64)
  mark_as_advanced(CUBLAS_INCLUDE_DIR CUBLAS_LIBRARY CUBLASLT_LIBRARY)
  if(CUBLAS_INCLUDE_DIR AND CUBLAS_LIBRARY AND CUBLASLT_LIBRARY)
    foreach(_cublas_name IN ITEMS cublas cublasLt)
      string(TOUPPER "${_cublas_name}_LIBRARY" _cublas_library)
      add_library(CUDA::${_cublas_name} UNKNOWN IMPORTED)
      set_target_properties(
        CUDA::${_cublas_name} PROPERTIES IMPORTED_LOCATION "${${_cublas_library}}" INTERFACE_INCLUDE_DIRECTORIES
                                                                                   "${CUBLAS_INCLUDE_DIR}")
    endforeach()
    unset(_cublas_library)
  endif()
  unset(_cublas_hints)
  unset(_cublas_packages)
endif()
