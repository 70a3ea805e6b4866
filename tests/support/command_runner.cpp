#include "tests/support/command_runner.hpp"

#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace pipewright::test {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::filesystem::path new_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "pipewright-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder");
  return name;
}

}  // namespace

Folder::Folder() : path_(new_folder()) {}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Folder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

CommandResult pipewright(const std::string& words, const Folder& folder) {
  return shell("$PW " + words, folder);
}

CommandResult shell(const std::string& line, const Folder& folder) {
  const Folder output;  // beside the folder, which tests look into
  const std::string out = (output.path() / "out").string(), err = (output.path() / "err").string();
  const std::string script = "cd '" + folder.path().string() +
                             "' && unset NO_COLOR COLUMNS LC_ALL && export LANG=C.UTF-8 "
                             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PW='" +
                             PIPEWRIGHT_COMMAND + "' && { " + line + "\n} >'" + out + "' 2>'" +
                             err + "' </dev/null";
  const int status = std::system(script.c_str());
  CommandResult result{.status = -1, .out = contents(out), .err = contents(err)};
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.status = 128 + WTERMSIG(status);
  return result;
}

}  // namespace pipewright::test
