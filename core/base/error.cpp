#include "core/base/error.hpp"

namespace pipewright {

namespace {

std::string sentence(const std::string& file, const std::string& pointer,
                     const std::string& message) {
  std::string text;
  for (const std::string* place : {&file, &pointer}) {
    if (!place->empty()) {
      text += *place + ": ";
    }
  }
  return text + message;
}

}  // namespace

InputError::InputError(std::string file, std::string pointer, std::string message)
    : Error(sentence(file, pointer, message)),
      file_(std::move(file)),
      pointer_(std::move(pointer)),
      message_(std::move(message)) {}

void throw_bug(const char* file, int line, const std::string& what) {
  // Only the last two parts of the path: the rest says where the program was built.
  std::string place = file;
  std::size_t slash = place.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    slash = place.rfind('/', slash - 1);
    if (slash != std::string::npos) {
      place.erase(0, slash + 1);
    }
  }
  throw Bug("internal error at " + place + ":" + std::to_string(line) + ": " + what +
            " (this is a mistake in Pipewright; please report it with the command and its input)");
}

}  // namespace pipewright
