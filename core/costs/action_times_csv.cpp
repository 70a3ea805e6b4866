// Times of actions as text.
#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/trimmed.hpp"
#include "core/base/words.hpp"
#include "core/costs/action_times.hpp"

namespace pipewright {
namespace {

constexpr std::string_view kHead = "replica,rank,action,ns";
constexpr std::int64_t kMostNumber = 1 << 24;

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void read_line(std::string_view line) {
    ++line_;
    line = trimmed(line);
    if (line.empty() || line.front() == '#') return;
    if (!has_head_) return read_head(line);
    std::array<std::string_view, 4> fields;
    for (std::size_t f = 0; f < fields.size(); ++f) {
      const std::size_t comma = f + 1 < fields.size() ? line.find(',') : line.size();
      if (comma == line.npos) fail("expected " + std::string(kHead) + ", found too few fields");
      fields[f] = trimmed(line.substr(0, comma));
      line.remove_prefix(std::min(comma + 1, line.size()));
    }
    ActionTime row;
    row.replica = static_cast<int>(number(fields[0], "a replica", kMostNumber));
    row.rank = RankId(number(fields[1], "a rank", kMostNumber));
    row.action = action(fields[2]);
    row.time = Nanoseconds(number(fields[3], "a whole number of nanoseconds", kMostNanoseconds));
    row.line = line_;
    rows_.push_back(std::move(row));
  }

  std::vector<ActionTime> take() {
    if (!has_head_) fail("expected the head " + std::string(kHead));
    return std::move(rows_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(file_, "line " + std::to_string(line_), what);
  }
  void read_head(std::string_view line) {
    std::string words;
    for (const char c : line) {
      if (c != ' ') words += c;
    }
    if (words != kHead) fail("expected the head " + std::string(kHead));
    has_head_ = true;
  }
  std::int64_t number(std::string_view text, const std::string& what, std::int64_t most) const {
    const auto value = number_of_word<std::int64_t>(text);
    if (!value || *value < 0 || *value > most)
      fail("expected " + what + ", 0 to " + std::to_string(most) + ", found \"" +
           std::string(text) + "\"");
    return *value;
  }
  Cell action(std::string_view text) const {
    const auto cell = parse_timed_action(text);
    if (!cell)
      fail("expected " + std::string(kTimedActions) + ", found \"" + std::string(text) + "\"");
    return *cell;
  }

  const std::string& file_;
  int line_ = 0;
  bool has_head_ = false;
  std::vector<ActionTime> rows_;
};

}  // namespace

std::vector<ActionTime> read_action_times_csv(std::string_view text, const std::string& file) {
  Reader reader(file);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    reader.read_line(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return reader.take();
}

std::string write_action_times_csv(const std::vector<ActionTime>& rows) {
  std::string text = std::string(kHead) + "\n";
  for (const ActionTime& row : rows) {
    text += std::to_string(row.replica) + "," + std::to_string(row.rank.value) + "," +
            to_string(row.action) + "," + std::to_string(row.time.value) + "\n";
  }
  return text;
}

}  // namespace pipewright
