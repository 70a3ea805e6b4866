// The files of traces/page/web, as the build put them into the library (cmake/EmbedPage.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace pipewright::traces {

struct PageSources {
  std::string_view html;  // with {{places}}
  std::string_view style;
  std::vector<std::string_view> scripts;  // in the order in which they run
};

const PageSources& page_sources();

}  // namespace pipewright::traces
