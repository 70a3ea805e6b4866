// A page that names the tests behind its promises names tests that exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "core/base/json.hpp"

namespace pipewright {
namespace documented_tests_test {

namespace fs = std::filesystem;

const fs::path& root() {
  static const fs::path kRoot = PIPEWRIGHT_SOURCE_DIR;
  return kRoot;
}

/// What pipewright_test(NAME …) of a folder lists.
std::vector<fs::path> sources_of(const std::string& folder, const std::string& name) {
  const std::string lists = read_text((root() / "tests" / folder / "CMakeLists.txt").string());
  const std::regex entry("pipewright_test\\(\\s*" + name + "\\s[^)]*\\)");
  std::vector<fs::path> sources;
  std::smatch found;
  if (!std::regex_search(lists, found, entry)) return sources;
  const std::string text = found.str();
  const std::regex source("[\\w./]+\\.cpp");
  for (std::sregex_iterator at(text.begin(), text.end(), source), end; at != end; ++at)
    sources.push_back(root() / "tests" / folder / at->str());
  return sources;
}

bool has_case(const fs::path& source, const std::string& suite, const std::string& name) {
  const std::string text = read_text(source.string());
  return std::regex_search(text,
                           std::regex("TEST(_F|_P)?\\(\\s*" + suite + ",\\s*" + name + "\\s*\\)"));
}

/// "faults.deaths.Threads.ComeHome…": folder, target, suite and case, as CTest calls it.
TEST(DocumentedTests, OfReliabilityExist) {
  const std::string page = read_text((root() / "docs/reliability.md").string());
  const std::regex name("`([a-z]+)\\.([a-z_0-9]+)\\.(\\w+)\\.(\\w+)`");
  int names = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), name), end; at != end; ++at, ++names) {
    const auto sources = sources_of(at->str(1), at->str(2));
    EXPECT_TRUE(std::any_of(
        sources.begin(), sources.end(),
        [&](const fs::path& source) { return has_case(source, at->str(3), at->str(4)); }))
        << at->str() << " is promised in docs/reliability.md and is no test";
  }
  EXPECT_GE(names, 30);
  // Every row of a promise has one.
  const std::regex row("\n\\| (?!promise|---)[^\n]*");
  for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at) {
    const std::string line = at->str();
    if (line.starts_with("\n|---")) continue;
    EXPECT_TRUE(std::regex_search(line, name)) << "a promise without a test:" << line;
  }
}

TEST(DocumentedTests, TheProofsOfReliabilityExist) {
  const std::string page = read_text((root() / "docs/reliability.md").string());
  const std::string proofs = read_text((root() / "scripts/prove").string());
  const std::regex name("\\(proof `([a-z-]+)`\\)");
  int names = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), name), end; at != end; ++at, ++names)
    EXPECT_TRUE(std::regex_search(proofs, std::regex("\n(proof|whole) " + at->str(1) + " ")))
        << at->str(1);
  EXPECT_GE(names, 2);
}

}  // namespace documented_tests_test
}  // namespace pipewright
