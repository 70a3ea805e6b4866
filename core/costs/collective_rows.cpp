#include "core/costs/collective_rows.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"
#include "core/base/trimmed.hpp"
#include "core/base/words.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kMostRows = 10'000;
constexpr double kLeastMicroseconds = 1e-3, kMostMicroseconds = 1e11;

CollectiveGroup packed(int members, int devices_per_node) {
  const int each = std::min(members, devices_per_node);
  return {members, (members + each - 1) / each, each};
}

int members_of(const std::string& key, const JsonCursor& rows) {
  const auto members = number_of_word<int>(key);
  if (!members || *members < 1 || *members > kMostDevices)
    rows.fail("a number of GPUs from 1 to " + std::to_string(kMostDevices) +
              " as the member's name");
  return *members;
}

void read_group(const JsonCursor& list, const CollectiveGroup& group,
                std::vector<MeasuredCollective>& rows) {
  for (const JsonCursor& row : list.elements()) {
    const std::vector<JsonCursor> cells = row.elements();
    if (cells.size() < 2) row.fail("bytes and microseconds");
    const std::int64_t bytes = cells[0].integer(1, kMostBytes);
    const double microseconds = cells[1].number(kLeastMicroseconds, kMostMicroseconds);
    if (group.members > 1) rows.push_back({group, bytes, microseconds * 1e3});
    if (rows.size() > kMostRows) row.fail("at most 10000 rows in all");
  }
}

void check_columns(const JsonCursor& columns) {
  const std::vector<JsonCursor> names = columns.elements();
  if (names.size() < 2 || names[0].string() != "bytes" || names[1].string() != "time_us")
    columns.fail("\"bytes\" and \"time_us\" as the first two columns");
}

/// What nccl-tests prints, line by line: above the table a line for each rank and one with the
/// names of the columns.
class NcclTestsReader {
 public:
  explicit NcclTestsReader(const std::string& file) : file_(file) {}

  void read_line(std::string_view line) {
    ++line_;
    const std::vector<std::string_view> words = words_of(line, " \t\r#");
    if (words.empty()) return;
    if (trimmed(line).front() == '#') {
      read_comment(words);
    } else if (const auto bytes = number_of_word<std::int64_t>(words.front())) {
      read_row(words, *bytes);
    }
  }

  std::vector<MeasuredCollective> take() {
    if (rows_.empty())
      throw InputError(file_, "",
                       "expected rows of all_reduce_perf (nccl-tests), or JSON with \"by_gpus\"");
    return std::move(rows_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw InputError(file_, "line " + std::to_string(line_), expected);
  }

  void read_comment(const std::vector<std::string_view>& words) {
    if (words.front() == "Rank") {
      if (in_table_) on_host_.clear();
      in_table_ = false;
      const auto on = std::find(words.begin(), words.end(), "on");
      ++on_host_[on + 1 < words.end() ? std::string(on[1]) : ""];
    } else if (words.front() == "size") {
      const auto time = std::find(words.begin(), words.end(), "time");
      if (time == words.end()) fail("expected a column \"time\"");
      time_ = static_cast<std::size_t>(time - words.begin());
      operation_ =
          static_cast<std::size_t>(std::find(words.begin(), words.end(), "redop") - words.begin());
    } else if (words.front() == "Collective" && words.back() != "all_reduce_perf") {
      fail("expected a run of all_reduce_perf, found " + std::string(words.back()) +
           "; other collectives have no rows yet");
    }
  }

  void read_row(const std::vector<std::string_view>& words, std::int64_t bytes) {
    if (time_ == 0) return;  // a number in the text above the table
    in_table_ = true;
    if (words.size() <= time_) fail("expected a row as long as the names of the columns say");
    if (operation_ < time_ && words[operation_] == "none")
      fail("expected rows of an all-reduce, found an operation \"none\"");
    const auto microseconds = number_of_word<double>(words[time_]);
    if (bytes < 0 || bytes > kMostBytes || !microseconds ||
        !(*microseconds >= kLeastMicroseconds && *microseconds <= kMostMicroseconds))
      fail("expected bytes, and microseconds as the column \"time\"");
    CollectiveGroup group{0, static_cast<int>(on_host_.size()), 0};
    for (const auto& [host, members] : on_host_) {
      group.members += members;
      group.most_on_node = std::max(group.most_on_node, members);
    }
    if (group.members < 1 || group.members > kMostDevices)
      fail("expected above the rows a line \"# Rank 0 ... on HOST device 0\" for each GPU");
    if (bytes == 0 || group.members == 1) return;
    if (rows_.size() == kMostRows) fail("expected at most 10000 rows in all");
    rows_.push_back({group, bytes, *microseconds * 1e3});
  }

  const std::string& file_;
  int line_ = 0;
  bool in_table_ = false;  // the ranks of the next lines are of another run
  std::size_t time_ = 0, operation_ = 0;
  std::map<std::string, int> on_host_;
  std::vector<MeasuredCollective> rows_;
};

}  // namespace

MeasuredCollectives read_collective_rows(const JsonCursor& document, int devices_per_node) {
  document.only({"source", "columns", "by_gpus"});
  MeasuredCollectives measured;
  const auto source = document.find("source");
  measured.source = source ? read_name(*source) : "measured";
  if (const auto columns = document.find("columns")) check_columns(*columns);
  for (const auto& [gpus, rows] : document.at("by_gpus").members())
    read_group(rows, packed(members_of(gpus, rows), devices_per_node), measured.rows);
  return measured;
}

MeasuredCollectives read_collective_text(std::string_view text, const std::string& file,
                                         int devices_per_node) {
  if (trimmed(text).substr(0, 1) == "{") {
    const Json document = parse_json(text, file);
    return read_collective_rows(JsonCursor(document, file), devices_per_node);
  }
  NcclTestsReader reader(file);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.read_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {"nccl-tests", reader.take()};
}

}  // namespace pipewright
