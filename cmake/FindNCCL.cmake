# Finds NCCL's header and library. NCCL_ROOT, in CMake or the environment, or $NCCL_HOME says where to look first; then
# PIPEWRIGHT_CUDA_TOOLCHAIN, the CUDA toolkit, and Python's site-packages, where pip puts it (nvidia/nccl, without an
# unversioned libnccl.so). NVIDIA's own CMake package, which NCCL has from 2.30 on, is not needed.
#
# Sets NCCL_FOUND, NCCL_INCLUDE_DIR, NCCL_LIBRARY and NCCL_VERSION.

set(_nccl_hints ${NCCL_ROOT} $ENV{NCCL_ROOT} $ENV{NCCL_HOME} ${PIPEWRIGHT_CUDA_TOOLCHAIN}
                ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT} /usr/local/cuda)
if(NOT NCCL_INCLUDE_DIR)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
      OUTPUT_VARIABLE _nccl_packages
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_nccl_packages)
      list(APPEND _nccl_hints "${_nccl_packages}/nvidia/nccl")
    endif()
  endif()
endif()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_nccl_hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${_nccl_hints} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR AND EXISTS "${NCCL_INCLUDE_DIR}/nccl.h")
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" _nccl_numbers REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM _nccl_numbers REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN _nccl_numbers "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  NCCL
  REQUIRED_VARS NCCL_INCLUDE_DIR NCCL_LIBRARY
  VERSION_VAR NCCL_VERSION)
unset(_nccl_hints)
unset(_nccl_packages)
unset(_nccl_numbers)
