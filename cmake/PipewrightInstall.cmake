# Install rules, the package for find_package(pipewright), and CPack. Components: `runtime` (the command), `dev`, and
# where they were built `mpi` (the module of --transport mpi) and `cuda` (that of --device cuda).

include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PIPEWRIGHT_INSTALL_CMAKEDIR "${CMAKE_INSTALL_LIBDIR}/cmake/pipewright")

# --- The command -----------------------------------------------------------------------------------------------------

install(TARGETS pipewright RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
if(TARGET pipewright_mpi)  # where the command looks for it: exec/transports/process/mpi/wire.cpp
  install(TARGETS pipewright_mpi LIBRARY DESTINATION "lib/pipewright" COMPONENT mpi)
endif()
if(TARGET pipewright_cuda)  # exec/devices/cuda/module.cpp looks there too
  install(TARGETS pipewright_cuda LIBRARY DESTINATION "lib/pipewright" COMPONENT cuda)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)

# --- The libraries ---------------------------------------------------------------------------------------------------
# Headers are included as "core/plan/plan.hpp"; the folder that makes it so is include/pipewright.

get_property(libraries GLOBAL PROPERTY PIPEWRIGHT_LIBRARIES)
install(
  TARGETS ${libraries}
  EXPORT pipewrightTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/pipewright" COMPONENT dev)
install(
  EXPORT pipewrightTargets
  NAMESPACE pipewright::
  DESTINATION "${PIPEWRIGHT_INSTALL_CMAKEDIR}"
  COMPONENT dev)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/pipewrightConfig.cmake.in" "${PROJECT_BINARY_DIR}/pipewrightConfig.cmake"
  INSTALL_DESTINATION "${PIPEWRIGHT_INSTALL_CMAKEDIR}"
  NO_SET_AND_CHECK_MACRO)
# Before 1.0, a new minor version may change anything.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/pipewrightConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/pipewrightConfig.cmake"
        "${PROJECT_BINARY_DIR}/pipewrightConfigVersion.cmake"
  DESTINATION "${PIPEWRIGHT_INSTALL_CMAKEDIR}"
  COMPONENT dev)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/schemas" DESTINATION "${CMAKE_INSTALL_DATADIR}/pipewright" COMPONENT dev)

# --- Packages --------------------------------------------------------------------------------------------------------
# `cpack -G TGZ` or `cpack -G DEB` in the build folder.

set(CPACK_PACKAGE_NAME pipewright)
set(CPACK_PACKAGE_VENDOR Pipewright)
set(CPACK_PACKAGE_CONTACT "The Pipewright authors <pipewright@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_COMPONENTS_ALL runtime dev)
if(TARGET pipewright_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "openmpi-bin")
endif()
if(TARGET pipewright_cuda)  # CUDA's own libraries come with the toolkit, which Debian does not package
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_CURRENT_LIST_DIR}/PackageOfGenerator.cmake")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "nlohmann-json3-dev (>= 3.11), libopenblas0-pthread, zlib1g-dev, libssl-dev (>= 3)")
# The other run-time libraries of the command are read from the binary, where Debian's tool for that is installed;
# OpenBLAS and SQLite are loaded when they are needed, so nothing in the binary names them.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libopenblas0-pthread")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libsqlite3-0")
find_program(PIPEWRIGHT_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(PIPEWRIGHT_SHLIBDEPS)
if(PIPEWRIGHT_SHLIBDEPS)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
else()
  string(APPEND CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS ", libc6, libstdc++6, zlib1g, libssl3 (>= 3.0) | libssl3t64")
endif()

include(CPack)
