#include "traces/chrome/trace_events.hpp"

#include <charconv>
#include <cmath>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::traces {
namespace {

constexpr std::size_t kMostDepth = 200;

/// Handles the parse as a stream, so that only what is wanted of a large file is ever held.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(std::string file, EventFilter is_kept) : file_(std::move(file)), is_kept_(is_kept) {}

  RawTrace take() {
    if (!saw_events_) {
      throw InputError(
          file_, "",
          "has no \"traceEvents\"; expected a Chrome trace: an object with that list, or "
          "the bare list");
    }
    return std::move(trace_);
  }

  bool null() override { return scalar("", false); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false", false); }
  bool number_integer(number_integer_t value) override {
    return scalar(std::to_string(value), true);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return scalar(std::to_string(value), true);
  }
  bool number_float(number_float_t, const string_t& text) override { return scalar(text, true); }
  bool string(string_t& value) override { return scalar(value, false); }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    if (in_events() && path_.size() == events_depth_) {
      event_ = {};
      event_.position = position_++;
    }
    return open(false);
  }
  bool end_object() override {
    path_.pop_back();
    if (in_events() && path_.size() == events_depth_) {
      if (event_.phase == "B") open_slice();
      if (event_.phase == "E") close_slice();
      const bool has_use = event_.phase == "X" || event_.phase == "M";
      if (has_use && is_kept_(event_)) trace_.events.push_back(std::move(event_));
      if (trace_.events.size() + begun_slices_ > kMostEvents) {
        throw InputError(file_, "/traceEvents",
                         "holds more than 5 million events of use; cut the trace to a few steps");
      }
    }
    return true;
  }
  bool start_array(std::size_t) override {
    const bool bare = path_.empty();
    const bool named = path_.size() == 1 && !path_[0].array && path_[0].key == "traceEvents";
    if (bare || named) {
      saw_events_ = true;
      events_depth_ = path_.size() + 1;
    }
    return open(true);
  }
  bool end_array() override {
    path_.pop_back();
    if (events_depth_ > path_.size()) events_depth_ = 0;
    return true;
  }
  bool key(string_t& value) override {
    path_.back().key = value;
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string why = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …": without
    // the id.
    if (const auto colon = why.find("] "); colon != std::string::npos) why.erase(0, colon + 2);
    throw InputError(file_, "byte " + std::to_string(byte), "is not JSON: " + why);
  }

 private:
  struct Level {
    bool array = false;
    std::string key;
  };

  void open_slice() {
    begun_[{event_.pid, event_.tid}].push_back(std::move(event_));
    ++begun_slices_;
    event_ = {};
  }

  /// Of the latest slice that began on this thread: it is whole now.
  void close_slice() {
    const auto begun = begun_.find({event_.pid, event_.tid});
    if (begun == begun_.end() || begun->second.empty()) return;
    const std::optional<std::int64_t> end_ns = event_.ts_ns;
    event_ = std::move(begun->second.back());
    begun->second.pop_back();
    --begun_slices_;
    event_.phase = "X";
    event_.dur_ns.reset();
    if (event_.ts_ns && end_ns) event_.dur_ns = *end_ns - *event_.ts_ns;
  }

  bool in_events() const { return events_depth_ != 0; }

  bool open(bool array) {
    if (path_.size() >= kMostDepth) {
      throw InputError(file_, "",
                       "is nested more than " + std::to_string(kMostDepth) + " levels deep");
    }
    path_.push_back({array, {}});
    return true;
  }

  bool scalar(std::string_view value, bool number) {
    if (path_.empty()) return true;
    if (in_events()) {
      if (path_.size() == events_depth_) ++position_;
      if (path_.size() == events_depth_ + 1) member(value, number);
      if (path_.size() == events_depth_ + 2 && path_[events_depth_].key == "args") {
        argument(value, number);
      }
      return true;
    }
    if (path_.size() == 1 && path_[0].key == "baseTimeNanoseconds") trace_.base_ns = integer(value);
    if (path_.size() != 2 || path_[0].array || path_[1].array) return true;
    if (path_[0].key == "metadata") trace_.metadata[path_[1].key] = value;
    if (path_[0].key != "distributedInfo") return true;
    if (path_[1].key == "rank") trace_.rank = integer(value);
    if (path_[1].key == "world_size") trace_.world_size = integer(value);
    return true;
  }

  void member(std::string_view value, bool number) {
    const std::string& key = path_.back().key;
    if (key == "ph") event_.phase = value;
    if (key == "name") event_.name = value;
    if (key == "cat") event_.category = value;
    if (key == "pid") event_.pid = value;
    if (key == "tid") event_.tid = value;
    if (!number) return;
    if (key == "ts") event_.ts_ns = nanoseconds_of_micros(value);
    if (key == "dur") event_.dur_ns = nanoseconds_of_micros(value);
  }

  void argument(std::string_view value, bool number) {
    const std::string& key = path_.back().key;
    if (key == "action") event_.action = value;
    if (key == "part_of") event_.part_of = value;
    if (key == "name") event_.label = value;
    if (key == "sort_index" && number) event_.sort_index = integer(value);
    if (key == "correlation" && number) event_.correlation = integer(value);
    if (key == "waited_ns" && number) event_.waited_ns = integer(value).value_or(0);
  }

  static std::optional<std::int64_t> integer(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  }

  const std::string file_;
  const EventFilter is_kept_;
  RawTrace trace_;
  RawEvent event_;
  std::map<std::pair<std::string, std::string>, std::vector<RawEvent>> begun_;  // by pid and tid
  std::size_t begun_slices_ = 0;
  std::vector<Level> path_;
  std::size_t events_depth_ = 0;  // levels open inside the list of events; 0: not inside
  std::size_t position_ = 0;
  bool saw_events_ = false;
};

}  // namespace

std::optional<std::int64_t> nanoseconds_of_micros(std::string_view text) {
  // So that sums and differences of a few of them fit 64 bits.
  constexpr std::int64_t kMostMicros = std::int64_t{2'200'000'000'000'000};
  const bool negative = !text.empty() && text.front() == '-';
  const std::string_view digits = text.substr(negative ? 1 : 0);
  if (digits.find_first_of("eE") != std::string_view::npos) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    if (!(std::abs(value) < static_cast<double>(kMostMicros))) return std::nullopt;
    return static_cast<std::int64_t>(std::llround(value * 1000));
  }
  const auto point = digits.find('.');
  const std::string_view whole = digits.substr(0, point);
  std::int64_t micros = 0;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), micros);
  if (error != std::errc() || end != whole.data() + whole.size()) return std::nullopt;
  if (micros > kMostMicros) return std::nullopt;
  std::int64_t ns = micros * 1000;
  if (point != std::string_view::npos) {
    const std::string_view part = digits.substr(point + 1);
    std::int64_t unit = 100;
    for (std::size_t i = 0; i < part.size() && i < 4; ++i) {
      if (part[i] < '0' || part[i] > '9') return std::nullopt;
      if (i < 3) ns += (part[i] - '0') * unit;
      if (i == 3 && part[i] >= '5') ++ns;
      unit /= 10;
    }
  }
  return negative ? -ns : ns;
}

RawTrace read_events(std::streambuf& text, const std::string& file, EventFilter is_kept) {
  Handler handler(file, is_kept);
  std::istream stream(&text);
  nlohmann::json::sax_parse(stream, &handler);
  return handler.take();
}

}  // namespace pipewright::traces
