# PIPEWRIGHT_CUDA=OFF|AUTO|ON. What runs on NVIDIA's GPUs is a module, libpipewright_cuda.so, that the command loads when
# it is asked for (exec/devices/cuda/module_api.h): neither building nor starting the command needs CUDA. It is built
# only where it is asked for, because nvcc takes its time: ON requires nvcc and cuBLAS, AUTO builds it where they are. The
# module also holds the NCCL half (exec/transports/nccl) where NCCL's header and library are found.
#
# PIPEWRIGHT_CUDA_TOOLCHAIN: the folder that scripts/cuda-toolchain has filled, where all of them are looked for before
# anywhere else; the preset cuda names build/cuda-toolchain.
#
# CMAKE_CUDA_ARCHITECTURES says for which GPUs; 80 (A100), 90 (H100, H200) and 100 (B200) where nobody says.
# Sets PIPEWRIGHT_CUDA_MODULE, where the module lies or would lie.

include_guard(GLOBAL)

set(PIPEWRIGHT_CUDA OFF CACHE STRING "Build the CUDA module: OFF, AUTO or ON")
set_property(CACHE PIPEWRIGHT_CUDA PROPERTY STRINGS OFF AUTO ON)

set(PIPEWRIGHT_CUDA_MODULE "${PROJECT_BINARY_DIR}/libpipewright_cuda.so")

string(TOUPPER "${PIPEWRIGHT_CUDA}" _pipewright_cuda)
if(NOT _pipewright_cuda MATCHES "^(AUTO|ON|TRUE|YES|1|OFF|FALSE|NO|0)$")
  message(FATAL_ERROR "PIPEWRIGHT_CUDA=${PIPEWRIGHT_CUDA}: expected OFF, AUTO or ON")
endif()

if(_pipewright_cuda MATCHES "^(OFF|FALSE|NO|0)$")
  message(STATUS "The command is built without --device cuda (configure with -DPIPEWRIGHT_CUDA=ON where nvcc is)")
  return()
endif()

set(PIPEWRIGHT_CUDA_TOOLCHAIN "" CACHE PATH "A folder of scripts/cuda-toolchain")

include(CheckLanguage)
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(PIPEWRIGHT_NVCC nvcc HINTS "${PIPEWRIGHT_CUDA_TOOLCHAIN}/bin" PATHS /usr/local/cuda/bin)
  mark_as_advanced(PIPEWRIGHT_NVCC)
  if(PIPEWRIGHT_NVCC)
    set(CMAKE_CUDA_COMPILER "${PIPEWRIGHT_NVCC}")
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "Compute capabilities of the GPUs to build for")
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT _pipewright_cuda STREQUAL "AUTO")
    message(FATAL_ERROR "PIPEWRIGHT_CUDA=ON: there is no nvcc here. Run scripts/cuda-toolchain, put nvcc on the PATH or "
                        "name it with -DCMAKE_CUDA_COMPILER=, or configure with -DPIPEWRIGHT_CUDA=OFF.")
  endif()
  message(STATUS "No nvcc here: the command is built without --device cuda (the CUDA toolkit has it)")
  return()
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
include(PipewrightCublas)
if(NOT TARGET CUDA::cublas)
  if(NOT _pipewright_cuda STREQUAL "AUTO")
    message(FATAL_ERROR "PIPEWRIGHT_CUDA=ON: nvcc is here, cuBLAS is not. Run scripts/cuda-toolchain, name its folder "
                        "with -DCUBLAS_ROOT=, or configure with -DPIPEWRIGHT_CUDA=OFF.")
  endif()
  message(STATUS "No cuBLAS here: the command is built without --device cuda (pip: nvidia-cublas; CUBLAS_ROOT says where)")
  return()
endif()
if(DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

# The kernels' bits are the CPU's only without contraction. nvcc knows the host compiler's warnings by another name, and
# what it makes of our text is not ours to be pedantic about. (CMake 3.25 does not know the standards of nvcc 13.)
add_library(pipewright_cuda_kernels OBJECT "${PROJECT_SOURCE_DIR}/exec/devices/cuda/module/kernels.cu")
target_include_directories(pipewright_cuda_kernels PRIVATE "${PROJECT_SOURCE_DIR}")
target_compile_options(
  pipewright_cuda_kernels PRIVATE -std=c++20 -fmad=false --expt-relaxed-constexpr
                                  -Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-missing-field-initializers)
set_target_properties(
  pipewright_cuda_kernels
  PROPERTIES POSITION_INDEPENDENT_CODE ON
             CUDA_VISIBILITY_PRESET hidden
             VISIBILITY_INLINES_HIDDEN ON)

add_library(pipewright_cuda MODULE "${PROJECT_SOURCE_DIR}/exec/devices/cuda/module/runtime_module.cpp"
                                   "${PROJECT_SOURCE_DIR}/exec/devices/cuda/module/cublas_products.cpp")
target_include_directories(pipewright_cuda PRIVATE "${PROJECT_SOURCE_DIR}")
target_compile_features(pipewright_cuda PRIVATE cxx_std_20)
target_link_libraries(pipewright_cuda PRIVATE pipewright_options pipewright_cuda_kernels CUDA::cudart CUDA::cublas CUDA::cublasLt)
set_target_properties(
  pipewright_cuda
  PROPERTIES CXX_VISIBILITY_PRESET hidden
             VISIBILITY_INLINES_HIDDEN ON
             INSTALL_RPATH_USE_LINK_PATH ON
             LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")

# Attention by cuDNN 9: needs its headers and those of its front end; the library is opened at run time.
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS "${PIPEWRIGHT_CUDA_TOOLCHAIN}/include" ${CUDAToolkit_INCLUDE_DIRS})
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS "${PIPEWRIGHT_CUDA_TOOLCHAIN}/include"
                                                           ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR)
if(CUDNN_INCLUDE_DIR AND CUDNN_FRONTEND_INCLUDE_DIR)
  add_library(pipewright_cudnn OBJECT "${PROJECT_SOURCE_DIR}/exec/devices/cuda/module/cudnn_attention.cpp")
  target_include_directories(pipewright_cudnn PRIVATE "${PROJECT_SOURCE_DIR}")
  target_include_directories(pipewright_cudnn SYSTEM PRIVATE "${CUDNN_INCLUDE_DIR}" "${CUDNN_FRONTEND_INCLUDE_DIR}")
  target_compile_features(pipewright_cudnn PRIVATE cxx_std_20)
  target_compile_definitions(pipewright_cudnn PRIVATE NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING CUDNN_FRONTEND_SKIP_JSON_LIB)
  target_link_libraries(pipewright_cudnn PRIVATE pipewright_options CUDA::cudart)
  set_target_properties(
    pipewright_cudnn
    PROPERTIES POSITION_INDEPENDENT_CODE ON
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(pipewright_cuda PRIVATE pipewright_cudnn ${CMAKE_DL_LIBS})
  target_compile_definitions(pipewright_cuda PRIVATE PIPEWRIGHT_CUDNN)
else()
  message(STATUS "No headers of cuDNN 9 and its front end here: the CUDA module is built without fused attention "
                 "(CUDNN_INCLUDE_DIR and CUDNN_FRONTEND_INCLUDE_DIR say where)")
endif()

# Ranges that profilers show: need the header of NVTX 3.
include(PipewrightNvtx)
if(NVTX_INCLUDE_DIR)
  target_sources(pipewright_cuda PRIVATE "${PROJECT_SOURCE_DIR}/exec/devices/cuda/module/nvtx_ranges.cpp")
  target_include_directories(pipewright_cuda SYSTEM PRIVATE "${NVTX_INCLUDE_DIR}")
  target_compile_definitions(pipewright_cuda PRIVATE PIPEWRIGHT_NVTX)
  target_link_libraries(pipewright_cuda PRIVATE ${CMAKE_DL_LIBS})
else()
  message(STATUS "No header of NVTX 3 here: the CUDA module is built without ranges for Nsight (NVTX_INCLUDE_DIR says where)")
endif()

# What GPUs do, kernel by kernel: needs CUPTI's header; the library is opened at run time.
find_path(CUPTI_INCLUDE_DIR cupti.h HINTS "${PIPEWRIGHT_CUDA_TOOLCHAIN}/include" ${CUDAToolkit_INCLUDE_DIRS}
                                          /usr/local/cuda/extras/CUPTI/include)
mark_as_advanced(CUPTI_INCLUDE_DIR)
if(CUPTI_INCLUDE_DIR)
  add_library(pipewright_cupti OBJECT "${PROJECT_SOURCE_DIR}/exec/devices/cuda/module/cupti_activities.cpp")
  target_include_directories(pipewright_cupti PRIVATE "${PROJECT_SOURCE_DIR}")
  target_include_directories(pipewright_cupti SYSTEM PRIVATE "${CUPTI_INCLUDE_DIR}")
  target_compile_features(pipewright_cupti PRIVATE cxx_std_20)
  target_link_libraries(pipewright_cupti PRIVATE pipewright_options CUDA::cudart)
  set_target_properties(
    pipewright_cupti
    PROPERTIES POSITION_INDEPENDENT_CODE ON
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(pipewright_cuda PRIVATE pipewright_cupti ${CMAKE_DL_LIBS})
  target_compile_definitions(pipewright_cuda PRIVATE PIPEWRIGHT_CUPTI)
else()
  message(STATUS "No header of CUPTI here: the CUDA module is built without a record of kernels (CUPTI_INCLUDE_DIR says where)")
endif()

# The NCCL half: needs its header; the library is opened at run time (exec/transports/nccl/module.cpp).
find_package(NCCL 2.27 MODULE)
if(NCCL_FOUND)
  target_sources(pipewright_cuda PRIVATE "${PROJECT_SOURCE_DIR}/exec/transports/nccl/module.cpp")
  set_source_files_properties(
    "${PROJECT_SOURCE_DIR}/exec/transports/nccl/module.cpp" PROPERTIES COMPILE_DEFINITIONS
                                                            "PIPEWRIGHT_NCCL_LIBRARY=\"${NCCL_LIBRARY}\"")
  target_include_directories(pipewright_cuda SYSTEM PRIVATE "${NCCL_INCLUDE_DIR}")
  target_link_libraries(pipewright_cuda PRIVATE ${CMAKE_DL_LIBS})
else()
  message(STATUS "No NCCL 2.27 or newer here: the CUDA module is built without --transport nccl (NCCL_ROOT says where)")
endif()
