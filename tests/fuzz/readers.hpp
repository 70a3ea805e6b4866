// Every reader of what comes from outside, as a function of bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pipewright::test {

struct Reader {
  std::string name;  // the folder of its corpus
  void (*read)(std::string_view bytes);
};

const std::vector<Reader>& readers();

/// Reads; what is refused by an InputError, or by a RunError where another process sent it, is as
/// it should be. Anything else is thrown on. False: refused.
bool accepts(const Reader& reader, std::string_view bytes);

}  // namespace pipewright::test
