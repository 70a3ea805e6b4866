#include "core/order/csv_lines.hpp"

#include <algorithm>
#include <charconv>

#include "core/base/error.hpp"
#include "core/base/trimmed.hpp"
#include "core/base/words.hpp"

namespace pipewright {
namespace {

constexpr std::string_view kFragment = "# fragment";
constexpr std::string_view kGroup = "# group ";
constexpr std::string_view kParts = "# parts ";
constexpr std::string_view kMesh = "# mesh ";
constexpr std::string_view kDevices = "# devices ";
constexpr std::string_view kSharding = "# sharding ";

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

void read_parts(std::string_view text, const std::string& file, int line, CsvLines& lines) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  if (colon == text.size())
    fail(file, line,
         "expected the parts of an action, such as \"# parts 0F: a*3 ALL_REDUCE(tp:x)\"");
  const std::vector<std::string_view> words = words_of(text.substr(colon + 1));
  const std::string fault =
      add_parts(trimmed(text.substr(0, colon)), {words.begin(), words.end()}, lines.parts);
  if (!fault.empty()) fail(file, line, fault);
}

/// "tp=2 ep=4": set(name, number) says what is wrong, or nothing.
template <class Set>
void read_numbers(std::string_view text, const std::string& file, int line,
                  const std::string& expected, Set set) {
  for (const std::string_view word : words_of(text)) {
    const std::size_t equals = std::min(word.find('='), word.size());
    std::int64_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [rest, error] =
        std::from_chars(word.data() + std::min(equals + 1, word.size()), end, number);
    if (error != std::errc() || rest != end) fail(file, line, expected);
    const std::string fault = set(std::string(word.substr(0, equals)), number);
    if (!fault.empty()) fail(file, line, fault);
  }
}

void read_axes(std::string_view text, const std::string& file, int line,
               std::vector<MeshAxis>& axes) {
  read_numbers(
      text, file, line, "expected axes and their devices, such as \"# mesh tp=2 ep=4\"",
      [&](const std::string& name, std::int64_t devices) { return add_axis(name, devices, axes); });
}

void read_sharding(std::string_view text, const std::string& file, int line, Sharding& sharding) {
  read_numbers(text, file, line, "expected what replicas divide, such as \"# sharding zero=2\"",
               [&](const std::string& name, std::int64_t value) {
                 return set_field(name, value, sharding);
               });
}

void read_comment(std::string_view line, const std::string& file, int number, CsvLines& lines) {
  if (line == kFragment) {
    lines.fragment = true;
  } else if (line.substr(0, kGroup.size()) == kGroup) {
    lines.groups.push_back(read_group(line.substr(kGroup.size()), file, number));
  } else if (line.substr(0, kParts.size()) == kParts) {
    read_parts(line.substr(kParts.size()), file, number, lines);
  } else if (line.substr(0, kMesh.size()) == kMesh) {
    read_axes(line.substr(kMesh.size()), file, number, lines.mesh);
  } else if (line.substr(0, kDevices.size()) == kDevices) {
    read_axes(line.substr(kDevices.size()), file, number, lines.devices);
  } else if (line.substr(0, kSharding.size()) == kSharding) {
    read_sharding(line.substr(kSharding.size()), file, number, lines.sharding);
  } else {
    fail(file, number,
         "expected \"# fragment\", \"# group ep: 0 2\", \"# parts 0F: a ALL_REDUCE(tp:x)\", "
         "\"# mesh tp=2\", \"# devices tp=2\", \"# sharding zero=2\" or a row of actions: nothing "
         "else begins with #");
  }
}

void put_axes(std::string_view what, const std::vector<MeshAxis>& axes, std::string& text) {
  if (axes.empty()) return;
  text += what.substr(0, what.size() - 1);
  for (const MeshAxis& axis : axes) text += " " + axis.name + "=" + std::to_string(axis.devices);
  text += '\n';
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

std::string csv_head(const CsvLines& lines) {
  std::string text;
  if (lines.fragment) (text += kFragment) += '\n';
  for (const Group& group : lines.groups) {
    (text += kGroup) += group.name + ":";
    for (const RankId rank : group.ranks) text += " " + std::to_string(rank.value);
    text += '\n';
  }
  for (const ActionParts& of : lines.parts) {
    (text += kParts) += name_of(of) + ":";
    for (const Part& part : of.parts) text += " " + to_string(part);
    text += '\n';
  }
  put_axes(kMesh, lines.mesh, text);
  put_axes(kDevices, lines.devices, text);
  if (const std::string sharding = to_string(lines.sharding); !sharding.empty())
    (text += kSharding) += sharding + "\n";
  return text;
}

}  // namespace pipewright
