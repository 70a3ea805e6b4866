# The ways to add a test. Every test carries the name of its folder as a label: `ctest -L unit`.

include_guard(GLOBAL)
include(GoogleTest)

find_package(Python3 COMPONENTS Interpreter)
find_program(PIPEWRIGHT_NODE node)
mark_as_advanced(PIPEWRIGHT_NODE)

# What each C++ test knows of its surroundings. Where a path is empty or leads nowhere, the test skips itself and says
# what is missing.
add_library(pipewright_test_options INTERFACE)
target_link_libraries(pipewright_test_options INTERFACE pipewright_options)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 takes the standard library's own strings for reads out of bounds, here and there, once they are inlined.
  target_compile_options(pipewright_test_options INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  target_compile_options(pipewright_test_options INTERFACE -fpch-preprocess)  # for ccache
endif()
target_compile_features(pipewright_test_options INTERFACE cxx_std_20)
target_include_directories(pipewright_test_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_definitions(
  pipewright_test_options
  INTERFACE PIPEWRIGHT_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
            PIPEWRIGHT_GOLDEN_DIR="${PIPEWRIGHT_GOLDEN_DIR}"
            PIPEWRIGHT_ORACLE="${PIPEWRIGHT_ORACLE}"
            PIPEWRIGHT_PYTHON="$<$<BOOL:${Python3_FOUND}>:${Python3_EXECUTABLE}>"
            PIPEWRIGHT_NODE="$<$<BOOL:${PIPEWRIGHT_NODE}>:${PIPEWRIGHT_NODE}>"
            PIPEWRIGHT_COMMAND="${PROJECT_BINARY_DIR}/pipewright"
            PIPEWRIGHT_MPIRUN="${PIPEWRIGHT_MPIRUN}")

# What the suite under ThreadSanitizer needs, and nothing else.
add_custom_target(pipewright_tests_threads)

# The folders whose tests compute much themselves, and what tests share.
set(pipewright_computing_tests "^(property|fuzz|support)$")
if(NOT PIPEWRIGHT_SANITIZE)
  set(pipewright_computing_tests "^(property|fuzz|support|golden|traces|gpu)$")
endif()

# What a test is compiled with. What is looked into is the library; optimised and checked for undefined behaviour,
# GoogleTest's macros alone would take half of the build.
function(pipewright_test_flags target folder)
  target_link_libraries(${target} PRIVATE pipewright_test_options GTest::gmock)
  if(NOT folder MATCHES "${pipewright_computing_tests}")
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(PIPEWRIGHT_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# GoogleTest and the standard library are read once, not in every test: precompiled, one set for each set of flags.
function(pipewright_test_precompiled target folder)
  set(set pipewright_test_headers)
  if(folder MATCHES "${pipewright_computing_tests}")
    set(set pipewright_test_headers_optimised)
  endif()
  if(NOT TARGET ${set})
    set(empty "${PROJECT_BINARY_DIR}/tests/${set}.cpp")
    file(CONFIGURE OUTPUT "${empty}" CONTENT "" @ONLY)
    add_library(${set} OBJECT "${empty}")
    pipewright_test_flags(${set} "${folder}")
    target_precompile_headers(
      ${set}
      PRIVATE <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <algorithm> <filesystem> <fstream> <functional> <map>
              <random> <sstream> <string> <thread> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${set})
endfunction()

# pipewright_test_sources(VARIABLE FOLDER source...): a source of another folder is compiled once for all tests that name
# it.
function(pipewright_test_sources variable folder)
  set(result "")
  foreach(source IN LISTS ARGN)
    if(source MATCHES "^\\.\\./")
      cmake_path(ABSOLUTE_PATH source NORMALIZE)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE shared)
      string(MAKE_C_IDENTIFIER "shared_${shared}" shared)
      if(NOT TARGET ${shared})
        add_library(${shared} OBJECT "${source}")
        pipewright_test_flags(${shared} support)
        pipewright_test_precompiled(${shared} support)
      endif()
      list(APPEND result "$<TARGET_OBJECTS:${shared}>")
    else()
      list(APPEND result "${source}")
    endif()
  endforeach()
  set(${variable} "${result}" PARENT_SCOPE)
endfunction()

# Whether a test is built: under a sanitizer not one that takes long, under ThreadSanitizer only what starts threads, and
# of the others those of the sample.
set(PIPEWRIGHT_TEST_SAMPLE "" CACHE STRING "SEED/PARTS: the part of the tests that sanitizers see; all where it is empty")
function(pipewright_is_built variable name labels)
  set(result TRUE)
  if(PIPEWRIGHT_SANITIZE AND "slow" IN_LIST labels)
    set(result FALSE)
  elseif(PIPEWRIGHT_SANITIZE MATCHES "thread" AND NOT "threads" IN_LIST labels)
    set(result FALSE)
  elseif(PIPEWRIGHT_SANITIZE AND PIPEWRIGHT_TEST_SAMPLE MATCHES "^([0-9]+)/([0-9]+)$")
    string(MD5 hash "${name}")
    string(SUBSTRING "${hash}" 0 6 hash)
    math(EXPR other_part "(0x${hash} - ${CMAKE_MATCH_1}) % ${CMAKE_MATCH_2}")
    if(NOT other_part EQUAL 0)
      set(result FALSE)
    endif()
  endif()
  set(${variable} ${result} PARENT_SCOPE)
endfunction()

# One CTest test for a whole executable. Its report of single cases is what scripts/count-tests adds up. Of a family that
# takes long (part_of_N) a sample has one in N of the cases.
function(pipewright_whole_test name target labels threads_only timeout)
  add_test(NAME ${name} COMMAND "${CMAKE_CURRENT_BINARY_DIR}/${target}" --gtest_brief=1
                                --gtest_output=xml:${PROJECT_BINARY_DIR}/reports/${target}.xml)
  math(EXPR timeout "${timeout} * 10")
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout})
  if(threads_only AND PIPEWRIGHT_SANITIZE MATCHES "thread")
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=${threads_only}")
  endif()
  if(PIPEWRIGHT_TEST_SAMPLE AND labels MATCHES "part_of_([0-9]+)")
    set(shards ${CMAKE_MATCH_1})
    math(EXPR shard "${PIPEWRIGHT_TEST_SAMPLE} % ${shards}")  # SEED divided by PARTS: what chose this test is not in it
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards}" "GTEST_SHARD_INDEX=${shard}")
  endif()
endfunction()

# Most of what a test costs to build is GoogleTest's own templates and the program around it. Together, the tests whose
# sources lie in one folder are one executable, compiled 32 files at a time; what is called like a test is then a
# script that starts it with the suites of that test. Apart, a changed test is built soonest.
option(PIPEWRIGHT_TESTS_TOGETHER "Build the tests of a folder as one executable" OFF)

# Those of tests/gpu travel to other machines one by one, and fuzzers are few: they stay apart.

# GoogleTest's filter of the suites that the sources define, which each macro names on the line where it begins.
function(pipewright_suites_of variable)
  set(filter "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" lines REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\\(")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[A-Z_]+\\( *([A-Za-z0-9_]+).*" "\\1" suite "${line}")
      list(APPEND filter "${suite}.*" "${suite}/*.*" "*/${suite}.*" "*/${suite}/*.*")
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES filter)
  list(JOIN filter ":" filter)
  set(${variable} "${filter}" PARENT_SCOPE)
endfunction()

# Adds a test to its folder's executable, which it names in `variable`.
function(pipewright_join_tests variable target folder filter)
  cmake_parse_arguments(PARSE_ARGV 4 arg "" "" "SOURCES;LIBS")
  list(GET arg_SOURCES 0 first)
  cmake_path(GET first PARENT_PATH room)
  if(NOT room OR room MATCHES "^\\.\\.")
    set(room all)
  endif()
  set(group ${folder}_${room}_tests)
  if(NOT TARGET ${group})
    add_executable(${group})
    pipewright_test_flags(${group} ${folder})
    pipewright_test_precompiled(${group} ${folder})
    target_link_libraries(${group} PRIVATE GTest::gtest_main)
    set_target_properties(${group} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 32)
    # Nothing may be left out of all filters.
    add_test(NAME ${folder}.${room}.all_named COMMAND "${PROJECT_SOURCE_DIR}/tests/support/list_unnamed"
                                                      $<TARGET_FILE:${group}>
                                                      "$<JOIN:$<TARGET_PROPERTY:${group},PIPEWRIGHT_FILTERS>,:>")
    set_tests_properties(${folder}.${room}.all_named PROPERTIES LABELS ${folder})
  endif()
  pipewright_test_sources(sources ${folder} ${arg_SOURCES})
  get_target_property(known ${group} PIPEWRIGHT_SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source IN_LIST known)
      target_sources(${group} PRIVATE "${source}")
      set_property(TARGET ${group} APPEND PROPERTY PIPEWRIGHT_SOURCES "${source}")
    endif()
  endforeach()
  set_property(TARGET ${group} APPEND PROPERTY PIPEWRIGHT_FILTERS "${filter}")
  target_link_libraries(${group} PRIVATE ${arg_LIBS})
  add_custom_target(${target})
  add_dependencies(${target} ${group})
  file(
    CONFIGURE
    OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${target}"
    CONTENT [=[#!/bin/sh
exec "$(dirname "$0")/@group@" "--gtest_filter=@filter@" "$@"
]=]
    @ONLY)
  file(CHMOD "${CMAKE_CURRENT_BINARY_DIR}/${target}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
                                                                 GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  set(${variable} ${group} PARENT_SCOPE)
endfunction()

# pipewright_test(NAME SOURCES a_test.cpp... [LIBS pipewright::core...] [LABELS threads slow...] [TIMEOUT seconds])
# makes one GoogleTest executable (target <folder>_NAME) and one CTest test for each of its cases, named
# <folder>.NAME.<Suite>.<Case>. LIBS is pipewright::core where it is not given. Labels that .ci/run looks at:
#   threads   starts threads: also runs under ThreadSanitizer
#   slow      takes seconds: left out under sanitizers
#   part_of_N takes long in all: scripts/test without arguments runs one in N of its cases, as scripts/sample-tests
#             chooses; scripts/prove has a proof that runs all of them
# COMMAND marks a test that runs the `pipewright` executable: it is built before the test.
# THREADS_ONLY is GoogleTest's filter of the cases that run under ThreadSanitizer, where not all of them should.
# An executable is one test (<folder>.NAME) where starting it takes longer than most of its cases: where it says
# ONE_PROCESS, and always under sanitizers.
function(pipewright_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COMMAND;ONE_PROCESS" "TIMEOUT;THREADS_ONLY" "SOURCES;LIBS;LABELS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipewright_test(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_LIBS)
    set(arg_LIBS pipewright::core)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()

  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  set(target ${folder}_${name})
  pipewright_is_built(wanted ${target} "${arg_LABELS}")
  if(NOT wanted)
    return()
  endif()
  set(executable ${target})
  set(filter "*")
  set(together ${PIPEWRIGHT_TESTS_TOGETHER})
  if(arg_THREADS_ONLY AND PIPEWRIGHT_SANITIZE MATCHES "thread")
    set(together OFF)  # its filter would find other tests' cases
  endif()
  if(together AND folder MATCHES "^(unit|golden|property|parity|faults)$")
    pipewright_suites_of(filter ${arg_SOURCES})
    pipewright_join_tests(executable ${target} ${folder} "${filter}" SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
  else()
    pipewright_test_sources(sources ${folder} ${arg_SOURCES})
    add_executable(${target} ${sources})
    pipewright_test_flags(${target} ${folder})
    pipewright_test_precompiled(${target} ${folder})
    target_link_libraries(${target} PRIVATE ${arg_LIBS} GTest::gtest_main)
  endif()
  if(arg_COMMAND)
    add_dependencies(${executable} pipewright)
  endif()
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(pipewright_tests_threads ${target})
  endif()
  if(PIPEWRIGHT_SANITIZE OR arg_ONE_PROCESS)
    pipewright_whole_test(${folder}.${name} ${target} "${folder};${arg_LABELS}" "${arg_THREADS_ONLY}" ${arg_TIMEOUT})
    return()
  endif()
  gtest_discover_tests(
    ${executable}
    TEST_PREFIX "${folder}.${name}."
    TEST_FILTER "${filter}"
    TEST_LIST ${target}_TESTS
    NO_PRETTY_VALUES
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${arg_TIMEOUT} SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  # gtest_discover_tests cannot pass more than one label on, so they are set by a file that CTest reads after its own.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_labels.cmake")
  file(
    CONFIGURE
    OUTPUT "${labels_file}"
    CONTENT [=[foreach(test IN LISTS @target@_TESTS)
  set_tests_properties("${test}" PROPERTIES LABELS "@folder@;@arg_LABELS@")
endforeach()
]=]
    @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

# pipewright_mpi_test(NAME SOURCES ... [LIBS ...] [LABELS ...] PROCESSES n...)
# makes one executable whose main joins a job, and for each n two tests: <folder>.NAME.npN starts it by mpirun, and
# <folder>.NAME.tcpN as processes that meet by their environment. Where there is no mpirun the former say so and are
# skipped. The folder, mpi and slow are labels of each.
function(pipewright_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS;LABELS;PROCESSES")
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  set(target ${folder}_${name})
  pipewright_is_built(wanted ${target} "mpi;slow")
  if(NOT wanted)
    return()
  endif()
  pipewright_test_sources(sources ${folder} ${arg_SOURCES})
  add_executable(${target} ${sources})
  pipewright_test_flags(${target} ${folder})
  pipewright_test_precompiled(${target} ${folder})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} GTest::gtest)
  if(TARGET pipewright_mpi)
    add_dependencies(${target} pipewright_mpi)
  endif()
  foreach(n IN LISTS arg_PROCESSES)
    set(command "${PIPEWRIGHT_MPIRUN}" --oversubscribe -np ${n} $<TARGET_FILE:${target}>)
    if(NOT PIPEWRIGHT_MPIRUN)
      set(command $<TARGET_FILE:${target}>)  # says that it is skipped
    endif()
    add_test(NAME ${folder}.${name}.np${n} COMMAND ${command})
    set_tests_properties(
      ${folder}.${name}.np${n}
      PROPERTIES LABELS "${folder};mpi;slow;${arg_LABELS}" TIMEOUT 300 SKIP_RETURN_CODE 77 PROCESSORS 2
                 ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    add_test(NAME ${folder}.${name}.tcp${n} COMMAND "${PROJECT_SOURCE_DIR}/tests/support/start_job" ${n}
                                                    $<TARGET_FILE:${target}>)
    set_tests_properties(${folder}.${name}.tcp${n} PROPERTIES LABELS "${folder};mpi;slow;${arg_LABELS}" TIMEOUT 300
                                                              PROCESSORS 2)
  endforeach()
endfunction()

# pipewright_script_test(NAME COMMAND program args... [LABELS ...] [TIMEOUT seconds] [ENVIRONMENT VAR=value...])
# adds a test that is a program of its own. It says on stdout what it misses and exits 77 to be counted as skipped.
function(pipewright_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipewright_script_test(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  add_test(NAME ${folder}.${name} COMMAND ${arg_COMMAND})
  set_tests_properties(
    ${folder}.${name} PROPERTIES LABELS "${folder};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77
                                 ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# pipewright_benchmark(NAME SOURCES a_bench.cpp... [LIBS ...] [SMOKE filter])
# makes a Google Benchmark executable (target bench_NAME). With SMOKE, CTest runs the cases that match the filter for a
# moment, to keep them alive; it never judges a time.
function(pipewright_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SMOKE" "SOURCES;LIBS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pipewright_benchmark(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_LIBS)
    set(arg_LIBS pipewright::core)
  endif()
  add_executable(bench_${name} ${arg_SOURCES})
  target_link_libraries(bench_${name} PRIVATE pipewright_test_options ${arg_LIBS} benchmark::benchmark_main)
  if(arg_SMOKE)
    add_test(NAME bench.${name} COMMAND bench_${name} --benchmark_filter=${arg_SMOKE} --benchmark_min_time=0.001)
    set_tests_properties(bench.${name} PROPERTIES LABELS "bench;part_of_4" TIMEOUT 300)
  endif()
endfunction()
