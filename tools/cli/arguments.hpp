// What the user wrote after a sub-command, looked up by flag. Getters throw InputError naming the
// flag, what was expected and what was found; asking for a flag that the sub-command does not have
// is a Bug.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.hpp"
#include "tools/cli/command.hpp"

namespace pipewright::tools {

class Arguments {
 public:
  explicit Arguments(const Command& command);

  void add(std::string_view flag, std::string value);
  void add_positional(std::string value) { positionals_.push_back(std::move(value)); }

  bool has(std::string_view flag) const;
  /// The last value given.
  std::optional<std::string> text(std::string_view flag) const;
  std::string text_or(std::string_view flag, std::string_view otherwise) const;
  std::vector<std::string> all(std::string_view flag) const;
  /// All of them split at commas: "1,2,4", and the flag may be given again.
  std::vector<std::string> words(std::string_view flag) const;
  std::optional<std::int64_t> integer(std::string_view flag, std::int64_t least,
                                      std::int64_t most) const;
  int integer_or(std::string_view flag, int least, int most, int otherwise) const;
  std::optional<Nanoseconds> duration(std::string_view flag) const;
  const std::vector<std::string>& positionals() const { return positionals_; }

 private:
  const std::vector<std::string>& values(std::string_view flag) const;

  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positionals_;
};

/// Reads a whole number; `what` begins the sentence of the error.
std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t least,
                           std::int64_t most);

}  // namespace pipewright::tools
