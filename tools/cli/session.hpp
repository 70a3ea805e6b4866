// What a sub-command talks to: data goes to stdout, notes and progress to stderr. One thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/json.hpp"
#include "exec/runtime/phases.hpp"
#include "tools/cli/terminal.hpp"

namespace pipewright::tools {

/// A list of objects, too long to be in memory all at once.
struct JsonList {
  std::string key;
  std::size_t size = 0;
  std::function<Json(std::size_t index)> element;  // an object that is not empty
};

class Session {
 public:
  Session(Terminal terminal, bool json, bool quiet)
      : terminal_(terminal), json_(json), quiet_(quiet) {}

  const Terminal& terminal() const { return terminal_; }
  bool json() const { return json_; }
  bool quiet() const { return quiet_; }
  /// What the command is doing, as reported by the code that does it.
  exec::PhaseLog& phases() { return phases_; }

  /// Text for stdout, without control characters from an input (shown()). It is written at flush(),
  /// or when much of it has gathered.
  void print(std::string_view text);
  /// Writes what has gathered, so that it is seen before something slow begins.
  void flush();
  /// The one document of --json: adds "schema" in front.
  void print_result(const Json& fields);
  /// The same where `fields` has an empty array in place of the list.
  void print_result(const Json& fields, const JsonList& list);
  /// A line on stderr, after what was printed before it; nothing with --quiet.
  void note(std::string_view text);
  /// A line on stderr that the next one replaces; only where stderr is a terminal.
  void progress(std::string_view text);
  void clear_progress();

  /// Writes a file whole or not at all, "-" to standard output; Ctrl-C waits for the end. Throws
  /// MachineError, Interrupted; InputError for a "-" that no flag named.
  void save(const std::filesystem::path& path, std::string_view bytes);
  /// Notes that a file was written, with `more` after its name; not of standard output.
  void wrote(const std::filesystem::path& path, std::string_view more = "");
  /// save() and wrote() of a page for a browser.
  void save_page(const std::filesystem::path& path, std::string_view html);
  /// A flag names "-": standard output is that file's alone, and text goes to standard error.
  void give_stdout_to_a_file() { stdout_is_a_file_ = true; }

  /// True once the reader of stdout has gone away: what follows is not written, and that is no
  /// error.
  bool reader_gone() const { return reader_gone_; }

 private:
  void write_all(int descriptor, std::string_view text);

  Terminal terminal_;
  bool json_, quiet_;
  exec::PhaseLog phases_;
  bool progress_shown_ = false, reader_gone_ = false, stdout_is_a_file_ = false;
  std::string pending_;
};

}  // namespace pipewright::tools
