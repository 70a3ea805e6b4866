#include "planner/configurations/requested_values.hpp"

#include "core/base/error.hpp"
#include "planner/base/number_text.hpp"

namespace pipewright::planner {

std::vector<int> asked_numbers(const Choice& choice, const char* field, int least) {
  std::vector<int> values;
  for (const std::string& text : choice) {
    const auto value = least == 0 && text == "0" ? std::optional(0) : positive_integer(text);
    if (!value) {
      throw InputError(std::string(field) + ": expected a " +
                       (least == 0 ? "whole number" : "positive whole number") +
                       " or \"auto\", found \"" + text + "\"");
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<bool> asked_flags(const Choice& choice) {
  std::vector<bool> values;
  for (const std::string& text : choice) values.push_back(text == "true");
  return values;
}

std::vector<int> divisors(int number) {
  std::vector<int> list;
  for (int n = 1; n <= number; ++n) {
    if (number % n == 0) list.push_back(n);
  }
  return list;
}

}  // namespace pipewright::planner
