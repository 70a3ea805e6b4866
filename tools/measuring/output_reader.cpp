#include "tools/measuring/output_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <re2/re2.h>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::tools {
namespace {

using What = OutputGroup::What;

struct GroupName {
  std::string_view name;
  What what;
  double unit;
};
constexpr std::array<GroupName, 12> kGroupNames{{{"step_s", What::Step, 1e9},
                                                 {"step_ms", What::Step, 1e6},
                                                 {"step_us", What::Step, 1e3},
                                                 {"step_ns", What::Step, 1},
                                                 {"peak_bytes", What::Peak, 1},
                                                 {"peak_kib", What::Peak, 1024},
                                                 {"peak_mib", What::Peak, 1024.0 * 1024},
                                                 {"peak_gib", What::Peak, 1024.0 * 1024 * 1024},
                                                 {"peak_kb", What::Peak, 1e3},
                                                 {"peak_mb", What::Peak, 1e6},
                                                 {"peak_gb", What::Peak, 1e9},
                                                 {"out_of_memory", What::OutOfMemory, 1}}};

constexpr std::size_t kMostOfLine = 8192, kMostOfPattern = 500, kMostOfTail = 2000;

/// As PyTorch, CUDA, cuBLAS, ROCm, Paddle and the kernel's log say it.
constexpr std::array<std::string_view, 5> kOutOfMemory{
    "out of memory", "outofmemory", "out_of_memory", "alloc_failed", "resourceexhausted"};

const GroupName* named(std::string_view name) {
  const auto found = std::find_if(kGroupNames.begin(), kGroupNames.end(),
                                  [&](const GroupName& each) { return each.name == name; });
  return found == kGroupNames.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_name(std::string_view name) {
  std::vector<std::string_view> names;
  std::string list;
  for (const GroupName& each : kGroupNames) {
    names.push_back(each.name);
    list += (list.empty() ? "" : ", ") + std::string(each.name);
  }
  throw InputError("--read: \"" + std::string(name) + "\" is no name of what can be read" +
                   did_you_mean(name, names) + "; known are " + list);
}

/// Where groups open: takes the names out of "(?<step_ms>…)" and "(?P<step_ms>…)".
struct Unnamed {
  std::string regex;
  std::vector<OutputGroup> groups;
};

/// The name of a group whose "(?" or "(?P" ends before `at`, with its end behind the ">"; nullopt:
/// what follows is no name.
std::optional<std::string> name_at(const std::string& text, std::size_t at) {
  if (at >= text.size() || text[at] != '<') return std::nullopt;
  const std::size_t end = text.find('>', at);
  if (end == text.npos || (at + 1 < text.size() && (text[at + 1] == '=' || text[at + 1] == '!')))
    return std::nullopt;
  return text.substr(at + 1, end - at - 1);
}

Unnamed without_names(const std::string& text) {
  Unnamed result;
  int groups = 0;
  bool in_class = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    result.regex += text[at];
    if (text[at] == '\\' && at + 1 < text.size()) {
      result.regex += text[++at];
    } else if (in_class) {
      in_class = text[at] != ']';
    } else if (text[at] == '[') {
      in_class = true;
    } else if (text[at] == '(') {
      if (text.compare(at + 1, 1, "?") != 0) {
        ++groups;
        continue;
      }
      const std::size_t opens = at + (text.compare(at + 1, 2, "?P") == 0 ? 3 : 2);
      const auto name = name_at(text, opens);
      if (!name) continue;  // (?: (?= (?!
      const GroupName* const known = named(*name);
      if (known == nullptr) refuse_name(*name);
      result.groups.push_back({known->what, known->unit, ++groups});
      at = opens + name->size() + 1;
    }
  }
  return result;
}

/// Of bytes, whatever they encode.
std::shared_ptr<const re2::RE2> compiled(const std::string& text) {
  re2::RE2::Options options(re2::RE2::Latin1);
  options.set_log_errors(false);
  auto regex = std::make_shared<const re2::RE2>(text, options);
  if (!regex->ok())
    throw InputError("--read: \"" + text + "\" is no regular expression of RE2: " + regex->error());
  return regex;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

}  // namespace

OutputPattern read_output_pattern(const std::string& text) {
  if (text.size() > kMostOfPattern || text.find('\0') != text.npos)
    throw InputError("--read: expected a pattern of at most " + std::to_string(kMostOfPattern) +
                     " bytes");
  const std::size_t equals = text.find('=');
  const GroupName* const whole = named(text.substr(0, equals));
  if (whole != nullptr && equals != text.npos) {
    OutputPattern pattern{compiled(text.substr(equals + 1)), {{whole->what, whole->unit, 1}}};
    if (whole->what != What::OutOfMemory && pattern.regex->NumberOfCapturingGroups() == 0)
      throw InputError("--read: \"" + text +
                       "\" has no group: put what is to be read in parentheses");
    return pattern;
  }
  Unnamed unnamed = without_names(text);
  if (unnamed.groups.empty()) {
    throw InputError("--read: \"" + text +
                     "\" does not say what is read: step_ms=REGEX, whose first group is meant, or "
                     "a group with a name, (?<step_ms>[0-9.]+)");
  }
  return {compiled(unnamed.regex), std::move(unnamed.groups)};
}

void OutputReader::read(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n' || c == '\r') {
      read_line();
    } else if (line_.size() < kMostOfLine) {
      line_ += c;
    }
  }
}

void OutputReader::read_line() {
  if (line_.empty()) return;
  tail_ += line_ + "\n";
  if (tail_.size() > 2 * kMostOfTail) tail_.erase(0, tail_.size() - kMostOfTail);
  for (const OutputPattern& pattern : patterns_) {
    std::vector<re2::StringPiece> groups(
        static_cast<std::size_t>(pattern.regex->NumberOfCapturingGroups()) + 1);
    for (std::size_t from = 0; from <= line_.size();) {
      if (!pattern.regex->Match(line_, from, line_.size(), re2::RE2::UNANCHORED, groups.data(),
                                static_cast<int>(groups.size())))
        break;
      for (const OutputGroup& group : pattern.groups) {
        if (group.what == What::OutOfMemory) {
          says_out_of_memory_ = true;
          continue;
        }
        const re2::StringPiece number = groups[static_cast<std::size_t>(group.group)];
        take(group, std::string(number.data(), number.size()));
      }
      const auto end = static_cast<std::size_t>(groups[0].data() - line_.data()) + groups[0].size();
      from = std::max(end, from + 1);  // a match may be empty
    }
  }
  const std::string small = lower_case(line_);
  for (const std::string_view words : kOutOfMemory)
    says_out_of_memory_ = says_out_of_memory_ || small.find(words) != small.npos;
  line_.clear();
}

void OutputReader::take(const OutputGroup& group, const std::string& number) {
  char* rest = nullptr;
  const double value = std::strtod(number.c_str(), &rest) * group.unit;
  if (rest == number.c_str() || !(value >= 1)) return;
  if (group.what == What::Step && value <= static_cast<double>(kMostNanoseconds))
    steps_.push_back(value);
  if (group.what == What::Peak && value <= static_cast<double>(kMostBytes))
    peak_ = std::max(peak_, value);
}

OutputReading OutputReader::finish() {
  read_line();
  OutputReading reading;
  reading.says_out_of_memory = says_out_of_memory_;
  reading.steps = static_cast<int>(steps_.size());
  if (peak_ > 0) reading.peak = Bytes(std::llround(peak_));
  if (steps_.empty()) return reading;
  std::sort(steps_.begin(), steps_.end());
  const std::size_t half = steps_.size() / 2;
  const double median =
      steps_.size() % 2 == 1 ? steps_[half] : (steps_[half - 1] + steps_[half]) / 2;
  reading.step = Nanoseconds(std::llround(median));
  return reading;
}

}  // namespace pipewright::tools
