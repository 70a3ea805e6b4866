// The commands that pages and --help tell a reader to type, read out of their text.
//
// In Markdown a block is fenced or indented by four spaces. Its commands are the lines after "$ "
// and what follows each is its output; in a block without "$ " each line that runs pipewright is a
// command. Other blocks have none, and those fenced by "```sh hosts" are for several hosts
// (tests/faults/recipes_test.cpp). A command that ends with a backslash goes on in the next line.
// It ends with status 0, or as its own comment says ("# exits with 4"), or with 1 where the output
// shows a verdict (DEADLOCK, MISMATCH, INVALID) and no fix.
#pragma once

#include <string>
#include <vector>

namespace pipewright::test {

struct DocumentedCommand {
  int line = 0;        // in the text, from 1
  std::string text;    // as a reader would type it, with its comment
  std::string output;  // what is shown after it; "" where nothing is
  int status = 0;      // how it has to end
};

/// The commands of one block, which belong together: the later ones use files of the earlier ones.
using DocumentedBlock = std::vector<DocumentedCommand>;

/// Only blocks with a command that runs pipewright; builds and installations are no business of it.
std::vector<DocumentedBlock> blocks_of_page(const std::string& markdown);

/// The part "Examples" of a command's --help.
DocumentedBlock examples_of_help(const std::string& help);

/// True if `printed` has what is shown, in this order. Every space is alike, for text is wrapped to
/// the terminal; "…" stands for anything; and so does a time that the machine took ("in 3.2 ms").
bool shows(const std::string& printed, const std::string& shown);

}  // namespace pipewright::test
