// Text to JSON. nlohmann's parser does the reading; what is ours is the refusal of duplicate keys
// and of deep nesting, and messages with line and column.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace pipewright {

namespace {

constexpr std::size_t kDeepest = 200;
// An ordered object is searched from its front for each new key.
constexpr std::size_t kMostKeys = 10'000;
// Each takes some 50 bytes of memory, and a text of two letters.
constexpr std::size_t kMostValues = 20'000'000;

/// Builds the document from the parser's events. Throws InputError; keeps no reference to the text.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Level& level = levels_.back();
    level.key = value;
    if (!level.keys.insert(value).second) {
      throw InputError(file_, pointer(), "this key stands twice in its object; keep one");
    }
    if (level.keys.size() > kMostKeys) {
      throw InputError(file_, pointer(),
                       "an object with more than 10000 keys; no Pipewright file needs that");
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    throw InputError(file_, place(position), "not JSON: " + reason(error.what(), last_token));
  }

 private:
  struct Level {
    Json* value = nullptr;
    std::string key;                       // of an object: the key whose value comes next
    std::unordered_set<std::string> keys;  // of an object: those seen
  };

  template <class T>
  Json* put(T&& value) {
    if (++values_ > kMostValues) {
      throw InputError(file_, "", "more than 20 million values; no Pipewright file needs that");
    }
    if (levels_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::forward<T>(value));
      return &level.value->back();
    }
    Json& member = (*level.value)[level.key];
    member = std::forward<T>(value);
    return &member;
  }
  template <class T>
  bool add(T&& value) {
    put(Json(std::forward<T>(value)));
    return true;
  }
  bool open(Json container) {
    if (levels_.size() == kDeepest) {
      throw InputError(file_, "",
                       "nested more than 200 levels deep; no Pipewright file needs that");
    }
    Json* value = put(std::move(container));
    levels_.push_back({value, {}, {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  /// Where the key that was just read stands.
  std::string pointer() const {
    std::string result;
    for (const Level& level : levels_) {
      result += '/';
      if (level.value->is_array()) {
        result += std::to_string(level.value->size() - 1);
        continue;
      }
      for (char c : level.key) {
        if (c == '~' || c == '/') {
          result += c == '~' ? "~0" : "~1";
        } else {
          result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
        }
      }
    }
    return result;
  }

  std::string place(std::size_t position) const {
    const std::string_view before = text_.substr(0, position > 0 ? position - 1 : 0);
    const auto lines = std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n');
    const std::size_t column =
        before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1);
    return "line " + std::to_string(lines + 1) + ", column " + std::to_string(column + 1);
  }

  /// nlohmann's words without its codes: the part after "while parsing", printable ASCII only.
  static std::string reason(std::string_view what, const std::string& last_token) {
    if (what.find("out_of_range") != std::string_view::npos) {
      return "the number " + last_token.substr(0, 40) + " is too large";
    }
    const std::size_t dash = what.find(" - ");
    const std::size_t column = what.find(": ", what.find("column"));
    if (dash != std::string_view::npos) {
      what.remove_prefix(dash + 3);
    } else if (column != std::string_view::npos) {
      what.remove_prefix(column + 2);
    }
    std::string result;
    for (char c : what.substr(0, 160)) {
      const auto byte = static_cast<unsigned char>(c);
      result += byte < 0x20 || byte >= 0x7f ? '?' : c;
    }
    return result;
  }

  std::string_view text_;
  const std::string& file_;
  Json root_;
  std::vector<Level> levels_;
  std::size_t values_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InputError(file, "line 1, column 1", "the file is empty; expected a JSON object");
  }
  Builder builder(text, file);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    throw_bug(__FILE__, __LINE__, "the JSON parser stopped without saying why");
  }
  return builder.take();
}

}  // namespace pipewright
