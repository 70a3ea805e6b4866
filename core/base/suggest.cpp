#include "core/base/suggest.hpp"

#include <algorithm>
#include <cstddef>

namespace pipewright {

namespace {

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return result;
}

/// Insertions, deletions, replacements, and swaps of two neighbours, each at cost 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view wrong, const std::vector<std::string_view>& names) {
  // Nobody mistypes a name of hundreds of letters, and the distance is quadratic.
  constexpr std::size_t kLongest = 64;
  if (wrong.empty() || wrong.size() > kLongest) {
    return "";
  }
  const std::string typed = lower_case(wrong);
  std::string_view nearest;
  // A slip: one letter in short words, a third of the letters in long ones.
  std::size_t least = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (std::string_view name : names) {
    const std::size_t distance = edit_distance(typed, lower_case(name));
    if (distance < least && distance < name.size()) {
      least = distance;
      nearest = name;
    }
  }
  if (nearest.empty() && typed.size() >= 3) {
    for (std::string_view name : names) {
      if (lower_case(name).starts_with(typed)) {
        return std::string(name);  // the beginning of a longer name
      }
    }
  }
  return std::string(nearest);
}

std::string did_you_mean(std::string_view wrong, const std::vector<std::string_view>& names) {
  const std::string nearest = nearest_name(wrong, names);
  return nearest.empty() ? "" : " (did you mean \"" + nearest + "\"?)";
}

}  // namespace pipewright
