# What every target of the project shares: the options target, ccache, and the one way to add a library.

include_guard(GLOBAL)

# ccache, where it is installed and nobody asked for another launcher. Only for our own build: a project that embeds
# Pipewright decides for itself.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(PIPEWRIGHT_CCACHE ccache)
  mark_as_advanced(PIPEWRIGHT_CCACHE)
  if(PIPEWRIGHT_CCACHE)
    # What it has to be told before it keeps what was compiled with precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${PIPEWRIGHT_CCACHE}"
        CACHE STRING "Compiler launcher")
  endif()
endif()

# Warnings and sanitizers. Linked privately inside $<BUILD_INTERFACE:>, so it is never exported.
add_library(pipewright_options INTERFACE)
target_compile_options(
  pipewright_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
                               -Wextra-semi -Wimplicit-fallthrough -Wno-missing-field-initializers)
# A unit of many files is compiled in 0.9 of the time where GCC collects its garbage less often; some 1.5 GiB at most.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(pipewright_options INTERFACE "SHELL:--param ggc-min-expand=300"
                                                      "SHELL:--param ggc-min-heapsize=600000")
endif()
# __FILE__ names files from the project's root, so that every checkout compiles the same text, which the cache knows.
target_compile_options(pipewright_options INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(PIPEWRIGHT_SANITIZE)
  target_compile_options(pipewright_options INTERFACE -fsanitize=${PIPEWRIGHT_SANITIZE} -fno-sanitize-recover=all
                                                      -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # takes the sanitizers' own code in <regex> for reads of nothing
    target_compile_options(pipewright_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  # Asked of every access, these take half of the build; AddressSanitizer stops at what they would find, all but
  # misaligned addresses.
  if(PIPEWRIGHT_SANITIZE MATCHES "address,undefined")
    target_compile_options(pipewright_options INTERFACE -fno-sanitize=null,alignment,object-size)
  endif()
  target_link_options(pipewright_options INTERFACE -fsanitize=${PIPEWRIGHT_SANITIZE})
endif()

# The standard library and JSON are read once, not in every unit. None of our own headers is among them: they change
# daily.
function(pipewright_precompiled target)
  set(set pipewright_library_headers)
  if(NOT TARGET ${set})
    set(empty "${PROJECT_BINARY_DIR}/${set}.cpp")
    file(CONFIGURE OUTPUT "${empty}" CONTENT "" @ONLY)
    add_library(${set} OBJECT "${empty}")
    target_compile_features(${set} PRIVATE cxx_std_20)
    target_link_libraries(${set} PRIVATE pipewright_options nlohmann_json::nlohmann_json Threads::Threads)
    set_target_properties(${set} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_precompile_headers(
      ${set}
      PRIVATE <nlohmann/json.hpp> <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <filesystem> <functional>
              <map> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <thread> <unordered_map> <variant>
              <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${set})
endfunction()

# pipewright_library(NAME
#   SOURCES  a.cpp b.cpp      relative to the folder that calls
#   HEADERS  a.hpp b.hpp      the same; installed, and each must compile alone (all_verify_interface_header_sets)
#   DEPENDS  target...        part of the interface
#   PRIVATE  target...        used inside the sources only
# )
# makes the static library pipewright_NAME, known to everyone else as pipewright::NAME. Headers are included from the
# root of the project: "core/plan/plan.hpp".
function(pipewright_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipewright_library(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()

  set(target pipewright_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(pipewright::${name} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${arg_HEADERS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(
    ${target}
    PUBLIC ${arg_DEPENDS}
    PRIVATE $<BUILD_INTERFACE:pipewright_options> ${arg_PRIVATE})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
                                             VERIFY_INTERFACE_HEADER_SETS ON)
  pipewright_precompiled(${target})
  set_property(GLOBAL APPEND PROPERTY PIPEWRIGHT_LIBRARIES ${target})
endfunction()

# pipewright_command(MAIN main.cpp SOURCES ... DEPENDS ...): the executable `pipewright`, at the root of the build folder.
# All but main.cpp lies in a library of its own (pipewright::tools), so that tests can call it; it is not installed.
function(pipewright_command)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "MAIN" "SOURCES;DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipewright_command: unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()

  add_library(pipewright_tools STATIC ${arg_SOURCES})
  add_library(pipewright::tools ALIAS pipewright_tools)
  target_include_directories(pipewright_tools PUBLIC "${PROJECT_SOURCE_DIR}")
  target_compile_features(pipewright_tools PUBLIC cxx_std_20)
  target_compile_definitions(pipewright_tools PUBLIC PIPEWRIGHT_VERSION="${PROJECT_VERSION}")
  target_link_libraries(
    pipewright_tools
    PUBLIC ${arg_DEPENDS}
    PRIVATE pipewright_options)
  set_target_properties(pipewright_tools PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # It reads words and writes text; -O2 would take half as long again to compile.
  target_compile_options(pipewright_tools PRIVATE $<$<CONFIG:Release>:-O1>)
  pipewright_precompiled(pipewright_tools)

  add_executable(pipewright ${arg_MAIN})
  target_link_libraries(pipewright PRIVATE pipewright_options pipewright::tools)
  set_target_properties(pipewright PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  # Who builds the command alone can use --transport mpi too.
  if(TARGET pipewright_mpi)
    add_dependencies(pipewright pipewright_mpi)
  endif()
endfunction()
