# What every target of the project shares: the options target, ccache, and the one way to add a library.

include_guard(GLOBAL)

# ccache, where it is installed and nobody asked for another launcher. Only for our own build: a project that embeds
# Pipewright decides for itself.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(PIPEWRIGHT_CCACHE ccache)
  mark_as_advanced(PIPEWRIGHT_CCACHE)
  if(PIPEWRIGHT_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${PIPEWRIGHT_CCACHE}" CACHE STRING "Compiler launcher")
  endif()
endif()

# Warnings and sanitizers. Linked privately inside $<BUILD_INTERFACE:>, so it is never exported.
add_library(pipewright_options INTERFACE)
target_compile_options(
  pipewright_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
                               -Wextra-semi -Wimplicit-fallthrough -Wno-missing-field-initializers)
if(PIPEWRIGHT_SANITIZE)
  target_compile_options(pipewright_options INTERFACE -fsanitize=${PIPEWRIGHT_SANITIZE} -fno-sanitize-recover=all
                                                      -fno-omit-frame-pointer)
  target_link_options(pipewright_options INTERFACE -fsanitize=${PIPEWRIGHT_SANITIZE})
endif()

# pipewright_library(NAME
#   SOURCES  a.cpp b.cpp      relative to the folder that calls
#   HEADERS  a.hpp b.hpp      the same; installed, and each must compile alone (all_verify_interface_header_sets)
#   DEPENDS  target...        part of the interface
#   PRIVATE  target...        used inside the sources only
# )
# makes the static library pipewright_NAME, known to everyone else as pipewright::NAME. Headers are included from the
# root of the project: "core/plan.hpp". A folder with headers only, or with nothing yet, becomes an INTERFACE library.
function(pipewright_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipewright_library(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  pipewright_existing(arg_SOURCES)
  pipewright_existing(arg_HEADERS)

  set(target pipewright_${name})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:pipewright_options> ${arg_PRIVATE})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(pipewright::${name} ALIAS ${target})

  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${arg_DEPENDS})
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${arg_HEADERS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} VERIFY_INTERFACE_HEADER_SETS ON)
  set_property(GLOBAL APPEND PROPERTY PIPEWRIGHT_LIBRARIES ${target})
endfunction()

# pipewright_command(MAIN main.cpp SOURCES ... DEPENDS ...): the executable `pipewright`, at the root of the build folder.
# All but main.cpp lies in a library of its own (pipewright::tools), so that tests can call it; it is not installed.
function(pipewright_command)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "MAIN;SOURCES;DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipewright_command: unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  pipewright_existing(arg_MAIN)
  pipewright_existing(arg_SOURCES)

  if(arg_SOURCES)
    add_library(pipewright_tools STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(pipewright_tools PRIVATE pipewright_options)
    target_compile_features(pipewright_tools PUBLIC cxx_std_20)
  else()
    add_library(pipewright_tools INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(pipewright::tools ALIAS pipewright_tools)
  target_link_libraries(pipewright_tools ${scope} ${arg_DEPENDS})
  target_include_directories(pipewright_tools ${scope} "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(pipewright_tools ${scope} PIPEWRIGHT_VERSION="${PROJECT_VERSION}")

  if(arg_MAIN)
    add_executable(pipewright ${arg_MAIN})
    target_link_libraries(pipewright PRIVATE pipewright_options pipewright::tools)
    # The install path keeps the folder of the serial BLAS, whichever flavour the system prefers.
    set_target_properties(pipewright PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
                                                INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
endfunction()

# While the first version is being written: drops the files of a list that do not exist yet, and says so.
function(pipewright_existing list_name)
  set(found "")
  foreach(file IN LISTS ${list_name})
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${file}" OR IS_ABSOLUTE "${file}")
      list(APPEND found "${file}")
    else()
      message(WARNING "${CMAKE_CURRENT_SOURCE_DIR}/${file} is listed but does not exist yet: left out")
    endif()
  endforeach()
  set(${list_name} "${found}" PARENT_SCOPE)
endfunction()
