// What stdout and stderr can show: colour, width, letters beyond ASCII.
#pragma once

#include <string>
#include <string_view>

namespace pipewright::tools {

struct Terminal {
  bool color = false;     // of stdout
  bool progress = false;  // stderr is a terminal: a line may be redrawn
  bool unicode = false;   // the locale is UTF-8
  int width = 80;         // of stdout; 80 in a pipe
  /// Stdout is a terminal: rows of a table are broken at the width; in a pipe or a file they are
  /// whole.
  bool cuts_rows = true;
  /// Stands behind the ESC of our own codes until they are written (shown()), so that no input can
  /// bring codes of its own.
  std::string mark;
};

/// `color` is "auto" (a terminal, and NO_COLOR is absent or empty), "always" or "never".
Terminal look_at_terminal(std::string_view color);
/// Columns of stderr's terminal as it is now; 80 where it is none. It may be made wider or narrower
/// while a command goes on.
int width_of_stderr();

enum class Ink { Plain, Bold, Dim, Red, Green, Yellow, Blue };
/// The text between escape codes, or as it is without colour.
std::string painted(const Terminal& terminal, Ink ink, std::string_view text);
/// Text of ours with codes in it, none of it from an input.
std::string own_codes(const Terminal& terminal, std::string_view text);
/// As it is written to stdout: plain_text(), and our own codes.
std::string shown(const Terminal& terminal, std::string_view text);

}  // namespace pipewright::tools
