# PIPEWRIGHT_MPI=AUTO|ON|OFF. The MPI transport is a module, libpipewright_mpi.so, that the command loads when it is
# asked for (exec/transports/process/mpi/module_api.h): neither building nor starting the command needs MPI. AUTO builds
# it where MPI is.
#
# Sets PIPEWRIGHT_MPI_MODULE, where the module lies or would lie, and PIPEWRIGHT_MPIRUN, empty where there is none.

include_guard(GLOBAL)

set(PIPEWRIGHT_MPI AUTO CACHE STRING "Build the MPI module: AUTO, ON or OFF")
set_property(CACHE PIPEWRIGHT_MPI PROPERTY STRINGS AUTO ON OFF)

set(PIPEWRIGHT_MPI_MODULE "${PROJECT_BINARY_DIR}/libpipewright_mpi.so")
set(PIPEWRIGHT_MPIRUN "")

string(TOUPPER "${PIPEWRIGHT_MPI}" _pipewright_mpi)
if(NOT _pipewright_mpi MATCHES "^(AUTO|ON|TRUE|YES|1|OFF|FALSE|NO|0)$")
  message(FATAL_ERROR "PIPEWRIGHT_MPI=${PIPEWRIGHT_MPI}: expected AUTO, ON or OFF")
elseif(NOT _pipewright_mpi MATCHES "^(OFF|FALSE|NO|0)$")
  set(MPI_CXX_SKIP_MPICXX ON)
  if(_pipewright_mpi STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS CXX)
  else()
    find_package(MPI REQUIRED COMPONENTS CXX)
  endif()
endif()
unset(_pipewright_mpi)

if(MPI_CXX_FOUND)
  add_library(pipewright_mpi MODULE "${PROJECT_SOURCE_DIR}/exec/transports/process/mpi/module.cpp")
  target_include_directories(pipewright_mpi PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_features(pipewright_mpi PRIVATE cxx_std_20)
  target_link_libraries(pipewright_mpi PRIVATE pipewright_options MPI::MPI_CXX)
  set_target_properties(
    pipewright_mpi
    PROPERTIES CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  set(PIPEWRIGHT_MPIRUN "${MPIEXEC_EXECUTABLE}")
else()
  message(STATUS "No MPI here: the command is built without --transport mpi (libopenmpi-dev, openmpi-bin)")
endif()
