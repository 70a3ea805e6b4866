# Finds RE2, the archive where there is one: the command then runs where only it was copied.
#
# Defines the imported target RE2::RE2, and RE2_FOUND, RE2_LIBRARY, RE2_INCLUDE_DIR. Set RE2_ROOT to look somewhere else
# first.
find_library(RE2_LIBRARY NAMES libre2.a re2)
find_path(RE2_INCLUDE_DIR re2/re2.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  RE2
  REQUIRED_VARS RE2_LIBRARY RE2_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libre2-dev, or set RE2_ROOT")
mark_as_advanced(RE2_LIBRARY RE2_INCLUDE_DIR)

if(RE2_FOUND AND NOT TARGET RE2::RE2)
  add_library(RE2::RE2 UNKNOWN IMPORTED)
  set_target_properties(RE2::RE2 PROPERTIES IMPORTED_LOCATION "${RE2_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                               "${RE2_INCLUDE_DIR}")
endif()
