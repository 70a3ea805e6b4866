#include "core/order/csv_lines.hpp"

#include <algorithm>
#include <charconv>

#include "core/base/error.hpp"
#include "core/base/trimmed.hpp"

namespace pipewright {
namespace {

constexpr std::string_view kFragment = "# fragment";
constexpr std::string_view kGroup = "# group ";

[[noreturn]] void fail(const std::string& file, int line, const std::string& expected) {
  throw InputError(file, "line " + std::to_string(line), expected);
}

Group read_group(std::string_view text, const std::string& file, int line) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  Group group{std::string(trimmed(text.substr(0, colon))), {}};
  if (colon == text.size() || !is_call_name(group.name))
    fail(file, line, "expected a group and its ranks, such as \"# group ep: 0 2\"");
  text.remove_prefix(colon + 1);
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    int rank = -1;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || rank < 0 ||
        group.ranks.size() == static_cast<std::size_t>(kMostGroupRanks))
      fail(file, line, "expected the ranks of group " + group.name + ", with spaces between them");
    group.ranks.emplace_back(rank);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  }
  return group;
}

void read_comment(std::string_view line, const std::string& file, int number, CsvLines& lines) {
  if (line == kFragment) {
    lines.fragment = true;
  } else if (line.substr(0, kGroup.size()) == kGroup) {
    lines.groups.push_back(read_group(line.substr(kGroup.size()), file, number));
  } else {
    fail(file, number,
         "expected \"# fragment\", \"# group ep: 0 2\" or a row of actions: nothing else begins "
         "with #");
  }
}

}  // namespace

CsvLines split_csv(std::string_view text, const std::string& file) {
  CsvLines lines;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::string_view written = trimmed(line);
    if (!written.empty() && written.front() == '#') {
      read_comment(written, file, number, lines);
    } else if (line.find_first_not_of(" \t\r,") != line.npos) {
      lines.rows.push_back({number, line});
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string csv_head(bool fragment, const std::vector<Group>& groups) {
  std::string text;
  if (fragment) (text += kFragment) += '\n';
  for (const Group& group : groups) {
    (text += kGroup) += group.name + ":";
    for (const RankId rank : group.ranks) text += " " + std::to_string(rank.value);
    text += '\n';
  }
  return text;
}

}  // namespace pipewright
