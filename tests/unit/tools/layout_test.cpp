// The rooms of the house are those of docs/architecture.md: what each may include, no circle, no
// room with too many sources, and no installed header that needs one which is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace pipewright {
namespace layout_test {

namespace fs = std::filesystem;

constexpr std::size_t kMostSources = 25;
constexpr const char* kTops[] = {"core", "traces", "sim", "exec", "planner", "tools", "python"};

using Arrows = std::map<std::string, std::set<std::string>>;

fs::path root() { return PIPEWRIGHT_SOURCE_DIR; }

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string top_of(const std::string& room) { return room.substr(0, room.find('/')); }

/// The rows "| `room` | what | `room` `room` |".
Arrows documented() {
  static const std::regex row("\n\\| `([a-z_/]+)` \\| [^|\n]+ \\|([^|\n]*)\\|");
  static const std::regex name("`([a-z_/]+)`");
  const std::string page = text_of(root() / "docs/architecture.md");
  Arrows arrows;
  for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at) {
    std::set<std::string>& own = arrows[at->str(1)];
    const std::string includes = at->str(2);
    for (std::sregex_iterator in(includes.begin(), includes.end(), name); in != end; ++in)
      own.insert(in->str(1));
  }
  return arrows;
}

struct House {
  Arrows arrows;                               // by room, all rooms that it includes
  std::map<std::string, std::size_t> sources;  // by room
};

const House& house() {
  static const House found = [] {
    static const std::regex include(
        "\n#include \"((?:core|traces|sim|exec|planner|tools|python)/[^\"]+)\"");
    House result;
    for (const char* top : kTops) {
      for (const auto& entry : fs::recursive_directory_iterator(root() / top)) {
        const std::string ending = entry.path().extension().string();
        if (ending != ".cpp" && ending != ".hpp" && ending != ".cu" && ending != ".h") continue;
        const std::string room = fs::relative(entry.path().parent_path(), root()).string();
        result.sources[room] += ending == ".cpp" || ending == ".cu" ? 1 : 0;
        std::set<std::string>& own = result.arrows[room];
        const std::string text = "\n" + text_of(entry.path());
        for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at) {
          const std::string other = fs::path(at->str(1)).parent_path().string();
          if (other != room) own.insert(other);
        }
      }
    }
    return result;
  }();
  return found;
}

TEST(Layout, EveryRoomIsDescribedAndEachThatIsDescribedIsThere) {
  const Arrows rooms = documented();
  for (const auto& [room, sources] : house().sources) EXPECT_TRUE(rooms.contains(room)) << room;
  for (const auto& [room, includes] : rooms) EXPECT_TRUE(house().sources.contains(room)) << room;
}

TEST(Layout, ARoomIncludesWhatItsRowSaysAndNothingElse) {
  const Arrows allowed = documented();
  for (const auto& [room, includes] : house().arrows) {
    const std::set<std::string>& own = allowed.at(room);
    for (const std::string& other : includes) {
      const bool may =
          own.contains(other) || (top_of(other) != top_of(room) && own.contains(top_of(other)));
      EXPECT_TRUE(may) << room << " includes " << other
                       << ", which docs/architecture.md does not say";
    }
    for (const std::string& other : own) {
      const bool does = std::any_of(includes.begin(), includes.end(), [&](const std::string& name) {
        return name == other || top_of(name) == other;
      });
      EXPECT_TRUE(does) << room << " does not include " << other
                        << ", which docs/architecture.md says";
    }
  }
}

/// Takes away, again and again, the rooms that include none of those that are left.
TEST(Layout, NoRoomsIncludeOneAnother) {
  Arrows left = house().arrows;
  for (bool goes_on = true; goes_on;) {
    goes_on = std::erase_if(left, [&](const auto& room) {
                return std::none_of(room.second.begin(), room.second.end(),
                                    [&](const std::string& other) { return left.contains(other); });
              }) > 0;
  }
  std::string circle;
  for (const auto& [room, includes] : left) circle += room + " ";
  EXPECT_EQ(circle, "");
}

TEST(Layout, NoRoomHasTooManySources) {
  for (const auto& [room, sources] : house().sources) EXPECT_LE(sources, kMostSources) << room;
  std::map<std::string, std::size_t> tests;
  for (const auto& entry : fs::recursive_directory_iterator(root() / "tests")) {
    if (entry.path().extension() == ".cpp") ++tests[entry.path().parent_path().string()];
  }
  for (const auto& [folder, sources] : tests) EXPECT_LE(sources, kMostSources) << folder;
}

/// A test that no CMakeLists.txt names is never built, and so never fails.
TEST(Layout, EverySourceOfATestIsBuilt) {
  std::string lists;
  std::vector<std::string> sources;
  for (const auto& entry : fs::recursive_directory_iterator(root() / "tests")) {
    const fs::path& path = entry.path();
    if (path.filename() == "CMakeLists.txt") lists += text_of(path);
    if (path.extension() == ".cpp") sources.push_back(path.filename().string());
  }
  for (const std::string& source : sources)
    EXPECT_TRUE(std::regex_search(lists, std::regex("[ /(\n]" + source + "[ )\n]"))) << source;
}

/// What the CMakeLists.txt of the tops list.
std::set<std::string> installed_headers() {
  static const std::regex header("\n *([a-z0-9_/]+\\.hp?p?)\\b");
  std::set<std::string> headers;
  for (const char* top : kTops) {
    const std::string list = text_of(root() / top / "CMakeLists.txt");
    for (std::sregex_iterator at(list.begin(), list.end(), header), end; at != end; ++at)
      headers.insert(std::string(top) + "/" + at->str(1));
  }
  return headers;
}

TEST(Layout, InstalledHeadersIncludeInstalledOnes) {
  static const std::regex include("\n#include \"([^\"]+)\"");
  const std::set<std::string> headers = installed_headers();
  EXPECT_TRUE(headers.contains("core/program/program.hpp"));
  for (const std::string& header : headers) {
    const std::string text = "\n" + text_of(root() / header);
    for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at)
      EXPECT_TRUE(headers.contains(at->str(1))) << header << " includes " << at->str(1);
  }
}

}  // namespace layout_test
}  // namespace pipewright
