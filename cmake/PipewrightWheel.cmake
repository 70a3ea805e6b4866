# What a wheel has beside the package: all that `cmake --install` puts under a prefix, except for the C++ libraries, and
# OpenBLAS, which PyPI has for this purpose (scipy-openblas32) and which the command finds in lib/pipewright
# (exec/devices/cpu/kernels/blas.cpp). scikit-build-core installs the component `python` and nothing else.

include_guard(GLOBAL)

if(NOT PIPEWRIGHT_PYTHON)
  return()
endif()

execute_process(
  COMMAND "${PIPEWRIGHT_PYTHON_EXECUTABLE}" -c "import scipy_openblas32; print(scipy_openblas32.get_lib_dir())"
  OUTPUT_VARIABLE openblas
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE missing)
if(missing EQUAL 0)
  file(GLOB licence "${openblas}/../../scipy_openblas32-*.dist-info/licenses/LICENSE*")
  install(FILES "${openblas}/libscipy_openblas.so" DESTINATION lib/pipewright COMPONENT openblas EXCLUDE_FROM_ALL)
  install(FILES ${licence} RENAME LICENSE-OpenBLAS DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT openblas EXCLUDE_FROM_ALL)
elseif(SKBUILD)
  message(FATAL_ERROR "A wheel needs OpenBLAS: pip install scipy-openblas32")
endif()

if(SKBUILD)
  add_custom_target(pipewright_wheel)
  add_dependencies(pipewright_wheel pipewright pipewright_completions pipewright_python pipewright_python_stub)
  foreach(module IN ITEMS pipewright_mpi pipewright_cuda)
    if(TARGET ${module})
      add_dependencies(pipewright_wheel ${module})
    endif()
  endforeach()
  install(CODE "set(build \"${PROJECT_BINARY_DIR}\")
set(data \"${SKBUILD_DATA_DIR}\")
set(scripts \"${SKBUILD_SCRIPTS_DIR}\")" COMPONENT python)
  install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/wheel_data.cmake" COMPONENT python)
endif()
