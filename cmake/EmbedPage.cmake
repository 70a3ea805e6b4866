# The sources of the HTML page as strings in a C++ source. They stay readable files, and the command needs none at run time.
#
# pipewright_embed_page(OUT page_sources.cpp HTML page.html CSS page.css JS a.js b.js …) makes OUT in the build folder;
# scripts come one after the other in the given order. As a script (-P) it writes the file.

if(CMAKE_SCRIPT_MODE_FILE)
  # One string a file: more than 65,536 characters no compiler has to take. A raw string ends at its delimiter alone,
  # which no source may contain.
  function(literal out)
    set(text "")
    foreach(file IN LISTS ARGN)
      file(READ "${file}" content)
      if(content MATCHES "\\)PIPEWRIGHT\"")
        message(FATAL_ERROR "${file} holds the delimiter of the string that it becomes")
      endif()
      string(APPEND text "R\"PIPEWRIGHT(${content})PIPEWRIGHT\",\n    ")
    endforeach()
    set(${out} "${text}" PARENT_SCOPE)
  endfunction()
  string(REPLACE "|" ";" JS "${JS}")
  literal(html "${HTML}")
  literal(css "${CSS}")
  literal(js ${JS})
  file(
    WRITE "${OUT}"
    "// Made by cmake/EmbedPage.cmake.\n#include \"traces/page/page_sources.hpp\"\n\nnamespace pipewright::traces {\n\n"
    "const PageSources& page_sources() {\n  static const PageSources sources = {\n    ${html}${css}{${js}}};\n"
    "  return sources;\n}\n\n}  // namespace pipewright::traces\n")
  return()
endif()

function(pipewright_embed_page)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT;HTML;CSS" "JS")
  list(TRANSFORM arg_JS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set(html "${CMAKE_CURRENT_SOURCE_DIR}/${arg_HTML}")
  set(css "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CSS}")
  string(REPLACE ";" "|" js "${arg_JS}")
  set(script "${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake")
  add_custom_command(
    OUTPUT "${arg_OUT}"
    COMMAND "${CMAKE_COMMAND}" "-DOUT=${arg_OUT}" "-DHTML=${html}" "-DCSS=${css}" "-DJS=${js}" -P "${script}"
    DEPENDS "${html}" "${css}" ${arg_JS} "${script}"
    VERBATIM)
endfunction()
