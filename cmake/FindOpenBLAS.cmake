# Finds OpenBLAS, the one built with pthreads where there is a choice. A rank is a thread that keeps to one core, so we
# ask it for one thread; but only the threaded builds may be called by several ranks at once
# (exec/devices/cpu/kernels/gemm.cpp).
#
# Defines the imported target OpenBLAS::OpenBLAS, and OpenBLAS_FOUND, OpenBLAS_LIBRARY, OpenBLAS_INCLUDE_DIR.
# Set OpenBLAS_ROOT to look somewhere else first.

find_library(
  OpenBLAS_LIBRARY
  NAMES openblas
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib /usr/local/lib
  PATH_SUFFIXES openblas-pthread)

# Debian keeps one cblas.h for each flavour, next to the library's own folder.
get_filename_component(_openblas_flavour "${OpenBLAS_LIBRARY}" DIRECTORY)
get_filename_component(_openblas_flavour "${_openblas_flavour}" NAME)
find_path(
  OpenBLAS_INCLUDE_DIR
  NAMES cblas.h
  PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} /usr/include /usr/local/include
  PATH_SUFFIXES ${_openblas_flavour} openblas-pthread openblas)
unset(_openblas_flavour)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  OpenBLAS
  REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libopenblas-pthread-dev, or set OpenBLAS_ROOT")
mark_as_advanced(OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR)

if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(
    OpenBLAS::OpenBLAS PROPERTIES IMPORTED_LOCATION "${OpenBLAS_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                          "${OpenBLAS_INCLUDE_DIR}")
endif()
