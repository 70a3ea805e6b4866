# The sources of the HTML page as strings in a C++ source. They stay readable files, and the command needs none at run time.

include_guard(GLOBAL)

# Sets `variable` to the files as literals, each with a comma. One string a file: more than 65,536 characters no compiler
# has to take. A raw string ends at its delimiter alone, which no file may contain.
function(pipewright_literals variable)
  set(text "")
  foreach(file IN LISTS ARGN)
    file(READ "${file}" content)
    if(content MATCHES "\\)PIPEWRIGHT\"")
      message(FATAL_ERROR "${file} holds the delimiter of the string that it becomes")
    endif()
    string(APPEND text "R\"PIPEWRIGHT(${content})PIPEWRIGHT\",\n    ")
  endforeach()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# pipewright_embed_page(OUT page_sources.cpp HTML page.html CSS page.css JS a.js b.js …) writes OUT in the build folder;
# scripts run in the given order. It is done while CMake configures, again whenever a file has changed: after a command of
# the build, everything that includes a header of this library would wait for the libraries below it.
function(pipewright_embed_page)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT;HTML;CSS" "JS")
  list(TRANSFORM arg_JS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set(html "${CMAKE_CURRENT_SOURCE_DIR}/${arg_HTML}")
  set(css "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CSS}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${html}" "${css}" ${arg_JS})
  pipewright_literals(page "${html}" "${css}")
  pipewright_literals(scripts ${arg_JS})
  file(
    WRITE "${arg_OUT}.new"
    "// Made by cmake/EmbedPage.cmake.\n#include \"traces/page/page_sources.hpp\"\n\nnamespace pipewright::traces {\n\n"
    "const PageSources& page_sources() {\n  static const PageSources sources = {\n    ${page}{${scripts}}};\n"
    "  return sources;\n}\n\n}  // namespace pipewright::traces\n")
  file(COPY_FILE "${arg_OUT}.new" "${arg_OUT}" ONLY_IF_DIFFERENT)
endfunction()
