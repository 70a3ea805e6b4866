// Every command that README, the pages and --help tell a reader to type, run as it stands there, in
// a folder that has nothing but this repository's README.md, docs and examples. The pages are read
// when the test runs; tests/support/documented_commands.hpp says what counts as a command.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command_runner.hpp"
#include "tests/support/documented_commands.hpp"

namespace pipewright::test {
namespace documented_commands_test {

namespace fs = std::filesystem;

constexpr int kThisMachineCannot = 3;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

const fs::path& source() {
  static const fs::path root = PIPEWRIGHT_SOURCE_DIR;
  return root;
}

/// What is there before the first command. Copies: commands may write over them.
void furnish(const Folder& folder) {
  for (const char* name : {"README.md", "docs", "examples"}) {
    fs::copy(source() / name, folder.path() / name, fs::copy_options::recursive);
  }
}

/// The line with the built command in front of the PATH, the folder as home, and a mpirun that
/// does not mind few cores.
CommandResult type(const std::string& line, const Folder& folder) {
  return shell(
      "export PATH=\"${PW%/*}:$PATH\" HOME=\"$PWD\" "
      "OMPI_MCA_rmaps_base_oversubscribe=1\n" +
          line,
      folder);
}

bool needs_hardware(const std::string& line) {
  static const std::regex kNeeds(R"(^mpirun |--transport (mpi|nccl)|--device cuda)");
  return std::regex_search(line, kNeeds);
}

/// False if this machine has not what the command needs, which is said by name.
bool runs_as_written(const DocumentedCommand& command, const std::string& where,
                     const Folder& folder) {
  const std::string at = where + ":" + std::to_string(command.line) + ": " + command.text;
  const std::string tool = command.text.substr(0, command.text.find(' '));
  if (type("command -v " + tool, folder).status != 0) {
    std::cout << "[ NOT RUN ] " << at << "\n            no " << tool << " on this machine\n";
    return false;
  }
  const CommandResult result = type(command.text, folder);
  if (result.status == kThisMachineCannot && command.status != kThisMachineCannot &&
      needs_hardware(command.text)) {
    std::cout << "[ NOT RUN ] " << at << "\n            " << result.err;
    return false;
  }
  EXPECT_EQ(result.status, command.status) << at << "\n" << result.out << result.err;
  if (result.status == command.status) {
    EXPECT_TRUE(shows(result.out + result.err, command.output))
        << at << "\nis shown with\n"
        << command.output << "\nand prints\n"
        << result.out << result.err;
  }
  return true;
}

int run_in(const Folder& folder, const DocumentedBlock& block, const std::string& where) {
  int run = 0;
  for (const DocumentedCommand& command : block) {
    run += runs_as_written(command, where, folder) ? 1 : 0;
  }
  return run;
}

int run_in_fresh_folder(const DocumentedBlock& block, const std::string& where) {
  const Folder folder;
  furnish(folder);
  return run_in(folder, block, where);
}

/// The name of a page or a command as the name of a test.
std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

/// Its blocks build on one another.
constexpr const char* kTutorial = "docs/tutorial.md";

/// Pages with a command. The examples in docs/cli.md are those of --help.
std::vector<std::string> pages() {
  std::vector<std::string> found;
  const auto take = [&](const fs::path& path) {
    if (path.extension() != ".md" || path.filename() == "cli.md") return;
    if (path == source() / kTutorial) return;
    if (!blocks_of_page(text_of(path)).empty()) found.push_back(path.lexically_relative(source()));
  };
  take(source() / "README.md");
  for (const char* folder : {"docs", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source() / folder)) {
      take(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

class Page : public ::testing::TestWithParam<std::string> {};

TEST_P(Page, EachBlockWorksInAFreshFolder) {
  int run = 0;
  for (const DocumentedBlock& block : blocks_of_page(text_of(source() / GetParam()))) {
    run += run_in_fresh_folder(block, GetParam());
  }
  EXPECT_GT(run, 0);
}

INSTANTIATE_TEST_SUITE_P(Documented, Page, ::testing::ValuesIn(pages()), test_name);

TEST(Documented, TheTutorialWorksFromItsFirstCommandToItsLast) {
  const Folder folder;
  furnish(folder);
  int run = 0;
  for (const DocumentedBlock& block : blocks_of_page(text_of(source() / kTutorial)))
    run += run_in(folder, block, kTutorial);
  EXPECT_GE(run, 20);
}

/// The pages of README's table "I want to …". Those that are not run here: tests/package installs,
/// and tests/python/documented_test.py and torch_documented_test.py run what Python does.
TEST(Documented, ThePageOfEachStoryIsRun) {
  const std::vector<std::string> run = pages();
  std::set<std::string> missing;
  int stories = 0;
  std::istringstream readme(text_of(source() / "README.md"));
  bool in_table = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("## ")) in_table = line.starts_with("## I want to");
    const std::size_t open = line.find("](docs/");
    if (!in_table || open == line.npos) continue;
    ++stories;
    const std::string page = line.substr(open + 2, line.find(')', open) - open - 2);
    if (page != kTutorial && std::find(run.begin(), run.end(), page) == run.end())
      missing.insert(page);
  }
  EXPECT_GE(stories, 13);
  EXPECT_EQ(missing, (std::set<std::string>{"docs/installing.md", "docs/python.md"}));
}

/// docs/cli.md has a heading for each; another test holds it and the command equal.
std::vector<std::string> commands() {
  std::vector<std::string> names = {""};  // pipewright --help
  std::ifstream page(source() / "docs" / "cli.md");
  const std::string heading = "### pipewright ";
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(heading)) continue;
    const std::string name = line.substr(heading.size()), parent = name.substr(0, name.find(' '));
    if (parent != name && std::find(names.begin(), names.end(), parent) == names.end()) {
      names.push_back(parent);
    }
    names.push_back(name);
  }
  return names;
}

std::string command_test_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param.empty() ? "pipewright" : test_name(info);
}

class Help : public ::testing::TestWithParam<std::string> {};

TEST_P(Help, EachExampleWorksInAFreshFolder) {
  const Folder folder;
  const std::string name = "pipewright " + GetParam() + (GetParam().empty() ? "" : " ") + "--help";
  const CommandResult help = type(name, folder);
  ASSERT_EQ(help.status, 0) << help.err;
  const DocumentedBlock examples = examples_of_help(help.out);
  EXPECT_FALSE(examples.empty()) << name << " begins with no example";
  run_in_fresh_folder(examples, name);
}

INSTANTIATE_TEST_SUITE_P(Documented, Help, ::testing::ValuesIn(commands()), command_test_name);

TEST(DocumentedCommands, AreFoundWithTheirOutputAndStatus) {
  const std::string page =
      "Text with `pipewright run x`.\n\n"
      "    $ pipewright check a.csv     # will it hang?\n    DEADLOCK\n      rank 0\n"
      "    $ cp a.csv b.csv\n    $ pipewright check a.csv --fix\n    DEADLOCK\n    fix: group\n\n"
      "    cmake --build pipewright-folder\n    scripts/demo  # runs pipewright demo\n\n"
      "```console\npipewright run a.csv   # exits with 4\nmpirun -np 2 pipewright \\\n  "
      "doctor\n```\n"
      "    - an item's second paragraph about pipewright run\n";
  const auto blocks = blocks_of_page(page);
  ASSERT_EQ(blocks.size(), 2U);
  ASSERT_EQ(blocks[0].size(), 3U);
  EXPECT_EQ(blocks[0][0].line, 3);
  EXPECT_EQ(blocks[0][0].output, "DEADLOCK\n  rank 0\n");
  EXPECT_EQ(blocks[0][0].status, 1);
  EXPECT_EQ(blocks[0][1].text, "cp a.csv b.csv");
  EXPECT_EQ(blocks[0][2].status, 0);
  ASSERT_EQ(blocks[1].size(), 2U);
  EXPECT_EQ(blocks[1][0].status, 4);
  EXPECT_EQ(blocks[1][1].text, "mpirun -np 2 pipewright doctor");
}

TEST(DocumentedCommands, OfHelpAreTheLinesUnderExamples) {
  const auto examples = examples_of_help(
      "pipewright run\n  replay\n\nExamples\n  pipewright run a.csv\n      a hang on real "
      "threads;\n"
      "      exits with 4\n  pipewright run \\\n      b.csv\n      no hang\n\nUsage\n  pipewright "
      "run\n");
  ASSERT_EQ(examples.size(), 2U);
  EXPECT_EQ(examples[0].text, "pipewright run a.csv # a hang on real threads; exits with 4");
  EXPECT_EQ(examples[0].status, 4);
  EXPECT_EQ(examples[1].line, 8);
  EXPECT_EQ(examples[1].text, "pipewright run b.csv # no hang");
  EXPECT_EQ(examples[1].status, 0);
}

TEST(DocumentedCommands, OutputIsComparedButForSpacesDotsAndTheMachinesTime) {
  const std::string printed = "rank 0 |01..|  busy 72.7 %\nstep 33 ms\n9 tried in 980 ms\nend\n";
  EXPECT_TRUE(shows(printed, ""));
  EXPECT_TRUE(shows(printed, "rank 0 |01..| busy 72.7 %\n  step 33\nms\n"));
  EXPECT_TRUE(shows(printed, "busy 72.7 %\n…\n9 tried in 1.2 s\nend\n"));
  EXPECT_TRUE(shows(printed, "rank 0 ... end"));
  EXPECT_FALSE(shows(printed, "step 34 ms"));
  EXPECT_FALSE(shows(printed, "rank 0 |01..| busy 72.7 %\n9 tried in 980 ms\n"));
  EXPECT_FALSE(shows(printed, "step 33 ms\n…\nrank 0"));
}

}  // namespace documented_commands_test
}  // namespace pipewright::test
