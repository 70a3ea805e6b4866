# NVTX_INCLUDE_DIR, where nvtx3/nvToolsExt.h is: NVTX 3 is headers alone. The toolkit has it, and Python's packages
# (nvidia-nvtx: nvidia/cu13/include in site-packages). PIPEWRIGHT_CUDA_TOOLCHAIN comes first. Without it the CUDA module is
# built without ranges.

include_guard(GLOBAL)

set(_nvtx_hints ${PIPEWRIGHT_CUDA_TOOLCHAIN} ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda)
if(NOT NVTX_INCLUDE_DIR)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
      OUTPUT_VARIABLE _nvtx_packages
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND _nvtx_hints "${_nvtx_packages}/nvidia/cu13" "${_nvtx_packages}/nvidia/nvtx")
  endif()
endif()
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${_nvtx_hints} PATH_SUFFIXES include)
mark_as_advanced(NVTX_INCLUDE_DIR)
unset(_nvtx_hints)
unset(_nvtx_packages)
