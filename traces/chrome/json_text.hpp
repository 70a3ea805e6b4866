// Appends JSON to a string without building a document: a trace has a line an event, and there may
// be millions. One writer is used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pipewright::traces {

class JsonText {
 public:
  JsonText& raw(std::string_view text) {
    text_.append(text);
    return *this;
  }
  JsonText& raw(char c) {
    text_.push_back(c);
    return *this;
  }
  JsonText& number(std::int64_t value);
  /// Nanoseconds as microseconds with exactly three decimals: 1234567 is "1234.567".
  JsonText& micros(std::int64_t ns);
  /// In quotes. A control character becomes a space, for trace viewers refuse a file that holds
  /// one; a byte that is not UTF-8 becomes '?'.
  JsonText& quoted(std::string_view text);

  void reserve(std::size_t bytes) { text_.reserve(bytes); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace pipewright::traces
