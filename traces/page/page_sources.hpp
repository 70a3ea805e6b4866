// The files of traces/page/web, as the build put them into the library (cmake/EmbedPage.cmake).
#pragma once

#include <string_view>

namespace pipewright::traces {

struct PageSources {
  std::string_view html;  // with {{places}}
  std::string_view style;
  std::string_view script;  // all of them, one after the other
};

const PageSources& page_sources();

}  // namespace pipewright::traces
