#include "traces/logs/megatron_timers.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/words.hpp"

namespace pipewright::traces {
namespace {

constexpr std::string_view kOfAll = "times across ranks (ms):",
                           kOfExtremes = "time across ranks (ms):",
                           kElapsed = "elapsed time per iteration (ms):";
constexpr std::size_t kMostTimers = 256;

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::int64_t> nanoseconds(double ms) {
  constexpr double kMost = 1e12;  // 30 years
  if (!(ms >= 0 && ms <= kMost)) return std::nullopt;
  return std::llround(ms * 1e6);
}

/// Of "… elapsed time per iteration (ms): 691.2 | …".
std::optional<std::int64_t> elapsed_of(std::string_view line) {
  const auto at = line.find(kElapsed);
  if (at == line.npos) return std::nullopt;
  const auto words = words_of(line.substr(at + kElapsed.size()));
  const auto ms = words.empty() ? std::nullopt : number_of_word<double>(words.front());
  return ms ? nanoseconds(*ms) : std::nullopt;
}

/// The number after "iteration" in "iteration       20/     100 | …".
std::optional<std::int64_t> iteration_of(std::string_view line) {
  constexpr std::string_view kWord = "iteration ";
  const auto at = line.find(kWord);
  if (at == line.npos) return std::nullopt;
  const std::string_view rest = trimmed(line.substr(at + kWord.size()));
  return number_of_word<std::int64_t>(rest.substr(0, rest.find('/')));
}

/// "forward-compute" of a line that ends in "  forward-compute:".
std::optional<std::string_view> timer_name(std::string_view line) {
  if (!line.ends_with(':')) return std::nullopt;
  line.remove_suffix(1);
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '/';
  };
  const auto begin = std::find_if_not(line.rbegin(), line.rend(), is_part).base();
  const std::string_view name(begin, line.end());
  return name.empty() ? std::nullopt : std::optional(name);
}

struct RankTime {
  std::string_view rank, time;
};

/// Of a line that ends in "rank  3: 12.34".
std::optional<RankTime> rank_time(std::string_view line) {
  constexpr std::string_view kWord = "rank ";
  const auto at = line.rfind(kWord);
  if (at == line.npos) return std::nullopt;
  const std::string_view rest = line.substr(at + kWord.size());
  const auto colon = rest.find(':');
  if (colon == rest.npos) return std::nullopt;
  return RankTime{trimmed(rest.substr(0, colon)), trimmed(rest.substr(colon + 1))};
}

class LogReader {
 public:
  explicit LogReader(const std::string& file) : file_(file) {}

  void read_line(std::string_view line) {
    ++line_;
    line = trimmed(line);
    if (const auto elapsed = elapsed_of(line)) {
      within_ = false;
      step_ns_ = elapsed;
      last_ = iteration_of(line);
    } else if (line.ends_with(kOfAll)) {
      begin_print();
    } else if (within_) {
      read_timer_line(line);
    }
  }

  std::vector<TimedIterations> prints() {
    for (TimedIterations& print : prints_) {
      for (auto& [name, times] : print.times) times.resize(static_cast<std::size_t>(ranks_));
    }
    return std::move(prints_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(file_, "line " + std::to_string(line_), message);
  }

  void begin_print() {
    within_ = true;
    name_ = {};
    prints_.push_back({last_, step_ns_, {}});
    last_ = {};
    step_ns_ = {};
  }

  /// Other ranks may print between the lines; theirs are passed over.
  void read_timer_line(std::string_view line) {
    if (const auto name = timer_name(line)) {
      name_ = *name;
      if (prints_.back().times.size() >= kMostTimers) fail("expected at most 256 timers");
    } else if (const auto time = rank_time(line); time && !name_.empty()) {
      put(*time);
    }
  }

  void put(const RankTime& written) {
    const auto rank = number_of_word<int>(written.rank);
    const auto ms = number_of_word<double>(written.time);
    const auto time = ms ? nanoseconds(*ms) : std::nullopt;
    if (!rank || !time) return;
    if (*rank < 0 || *rank >= kMostTimedRanks) fail("expected a rank below 2^20");
    auto& times = prints_.back().times[name_];
    const auto place = static_cast<std::size_t>(*rank);
    if (times.size() <= place) times.resize(place + 1);
    times[place] = *time;
    ranks_ = std::max(ranks_, *rank + 1);
  }

  const std::string& file_;
  std::vector<TimedIterations> prints_;
  std::optional<std::int64_t> last_, step_ns_;  // of the line of an iteration
  std::string name_;                            // the timer whose ranks follow
  std::int64_t line_ = 0;
  int ranks_ = 0;
  bool within_ = false;  // a print of timers
};

}  // namespace

bool has_megatron_timers(std::string_view log) {
  return log.find(kOfAll) != log.npos || log.find(kOfExtremes) != log.npos;
}

std::vector<TimedIterations> read_megatron_timers(std::string_view log, const std::string& file) {
  LogReader reader(file);
  for (std::string_view rest = log; !rest.empty();) {
    const auto end = rest.find('\n');
    reader.read_line(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  std::vector<TimedIterations> prints = reader.prints();
  const auto is_of_steps = [](const TimedIterations& print) {
    return print.times.count(kPassesTimer) > 0;
  };
  const bool any = std::any_of(prints.begin(), prints.end(), is_of_steps);
  std::erase_if(prints, [&](const TimedIterations& print) {
    return any ? !is_of_steps(print) : print.times.empty();
  });
  if (!prints.empty()) return prints;
  throw InputError(
      file, "", "expected the time of each rank; start Megatron-LM with --timing-log-option all");
}

}  // namespace pipewright::traces
