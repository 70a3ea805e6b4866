#include "tools/input/fail_if.hpp"

#include <charconv>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::tools {
namespace {

std::string without_spaces(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ') result += c;
  }
  return result;
}

[[noreturn]] void refuse(const std::string& text) {
  throw InputError("--fail-if: expected METRIC>LIMIT such as \"step>5%\", found \"" + text + "\"");
}

}  // namespace

Flag fail_if_flag(std::string_view help) {
  return {.group = "Output", .name = "--fail-if", .argument = "LIMIT", .help = help};
}

std::optional<FailCondition> fail_condition(const Arguments& arguments,
                                            const std::vector<std::string_view>& metrics) {
  const auto given = arguments.text("--fail-if");
  if (!given) return std::nullopt;
  const std::string text = without_spaces(*given);
  const std::size_t above = text.find('>');
  if (above == 0 || above == text.npos) refuse(*given);
  FailCondition condition{*given, text.substr(0, above), 0};
  std::string_view number = std::string_view(text).substr(above + 1);
  const bool percent = !number.empty() && number.back() == '%';
  if (percent) number.remove_suffix(1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), condition.limit);
  if (number.empty() || error != std::errc() || end != number.data() + number.size()) {
    refuse(*given);
  }
  if (percent) condition.limit /= 100;
  std::string list;
  for (const auto metric : metrics) {
    if (metric == condition.metric) return condition;
    list += (list.empty() ? "" : ", ") + std::string(metric);
  }
  throw InputError("--fail-if: unknown metric \"" + condition.metric + "\"" +
                   did_you_mean(condition.metric, metrics) + "; choose one of " + list);
}

bool fails(const std::optional<FailCondition>& condition,
           const std::map<std::string, double, std::less<>>& values) {
  if (!condition) return false;
  const auto value = values.find(condition->metric);
  return value != values.end() && value->second > condition->limit;
}

}  // namespace pipewright::tools
