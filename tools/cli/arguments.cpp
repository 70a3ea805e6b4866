#include "tools/cli/arguments.hpp"

#include <charconv>

#include "core/base/comma_list.hpp"
#include "core/base/error.hpp"

namespace pipewright::tools {

Arguments::Arguments(const Command& command) {
  for (const Flag& flag : command.flags) values_[std::string(flag.name)];
  for (const Flag& flag : common_flags()) values_[std::string(flag.name)];
}

void Arguments::add(std::string_view flag, std::string value) {
  values_[std::string(flag)].push_back(std::move(value));
}

const std::vector<std::string>& Arguments::values(std::string_view flag) const {
  const auto found = values_.find(flag);
  PIPEWRIGHT_ASSERT(found != values_.end(), "no flag " + std::string(flag) + " in this table");
  return found->second;
}

bool Arguments::has(std::string_view flag) const { return !values(flag).empty(); }

std::optional<std::string> Arguments::text(std::string_view flag) const {
  const auto& given = values(flag);
  if (given.empty()) return std::nullopt;
  return given.back();
}

std::string Arguments::text_or(std::string_view flag, std::string_view otherwise) const {
  return text(flag).value_or(std::string(otherwise));
}

std::vector<std::string> Arguments::all(std::string_view flag) const { return values(flag); }

std::vector<std::string> Arguments::words(std::string_view flag) const {
  std::vector<std::string> words;
  for (const std::string& text : values(flag)) {
    const auto parts = split_at_commas(text);
    words.insert(words.end(), parts.begin(), parts.end());
  }
  return words;
}

std::optional<std::int64_t> Arguments::integer(std::string_view flag, std::int64_t least,
                                               std::int64_t most) const {
  const auto given = text(flag);
  if (!given) return std::nullopt;
  return parse_integer(*given, flag, least, most);
}

int Arguments::integer_or(std::string_view flag, int least, int most, int otherwise) const {
  return static_cast<int>(integer(flag, least, most).value_or(otherwise));
}

std::optional<Nanoseconds> Arguments::duration(std::string_view flag) const {
  const auto given = text(flag);
  if (!given) return std::nullopt;
  return parse_duration(*given, flag);
}

std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t least,
                           std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw InputError(std::string(what) + ": expected a whole number from " + std::to_string(least) +
                     " to " + std::to_string(most) + ", found \"" + std::string(text) + "\"");
  }
  return value;
}

}  // namespace pipewright::tools
