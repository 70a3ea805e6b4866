# The Python that the module `pipewright` is built for, and nanobind, which lies in it. What builds a wheel
# (scikit-build-core) names its own.

include_guard(GLOBAL)

set(python python3)
if(DEFINED ENV{PIPEWRIGHT_PYTHON_EXECUTABLE})
  set(python "$ENV{PIPEWRIGHT_PYTHON_EXECUTABLE}")
endif()
if(SKBUILD)
  set(python "${Python_EXECUTABLE}")
endif()
set(PIPEWRIGHT_PYTHON_EXECUTABLE "${python}" CACHE FILEPATH "Python that has nanobind and numpy, for the Python module")

execute_process(
  COMMAND "${PIPEWRIGHT_PYTHON_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE PIPEWRIGHT_NANOBIND_DIR
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE missing)
set(found OFF)
if(missing EQUAL 0 AND NOT PIPEWRIGHT_SANITIZE)
  set(found ON)
endif()
option(PIPEWRIGHT_PYTHON "Build the Python module" ${found})
if(NOT PIPEWRIGHT_PYTHON)
  message(STATUS "The Python module is not built (configure with -DPIPEWRIGHT_PYTHON=ON "
                 "-DPIPEWRIGHT_PYTHON_EXECUTABLE=... where that Python has nanobind)")
  return()
endif()

set(Python_EXECUTABLE "${PIPEWRIGHT_PYTHON_EXECUTABLE}")
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
set(nanobind_ROOT "${PIPEWRIGHT_NANOBIND_DIR}")
find_package(nanobind CONFIG REQUIRED)
