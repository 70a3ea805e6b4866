#include "core/base/json.hpp"

#include <cmath>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright {

namespace {

/// A value as a reader of an error message needs it: short, on one line, valid UTF-8.
std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  switch (value.type()) {
    case Json::value_t::object:
      return value.empty() ? "an empty object" : "an object";
    case Json::value_t::array:
      return "an array of " + std::to_string(value.size());
    case Json::value_t::string: {
      // ensure_ascii: control characters and other letters come out as \uXXXX.
      std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
      if (text.size() > kLongest) {
        text = text.substr(0, kLongest - 4) + "...\"";
      }
      return text;
    }
    default:
      return value.dump();
  }
}

/// A key as a part of a JSON pointer (RFC 6901), control characters made visible.
std::string pointer_part(std::string_view key) {
  std::string part = "/";
  for (char c : key) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      part += '?';
    } else {
      part += c;
    }
  }
  return part;
}

std::string bounds(double least, double most) {
  const auto text = [](double v) { return Json(v).dump(); };
  return "from " + text(least) + " to " + text(most);
}

}  // namespace

JsonCursor::JsonCursor(const Json& value, std::string file, std::string pointer)
    : value_(&value), file_(std::move(file)), pointer_(std::move(pointer)) {}

void JsonCursor::fail(const std::string& expected) const {
  throw InputError(file_, pointer_, "expected " + expected + ", found " + shown(*value_));
}

JsonCursor JsonCursor::at(std::string_view key) const {
  std::optional<JsonCursor> member = find(key);
  if (!member) {
    throw InputError(file_, pointer_, "expected a member \"" + std::string(key) + "\"; add it");
  }
  return *member;
}

std::optional<JsonCursor> JsonCursor::find(std::string_view key) const {
  if (!value_->is_object()) {
    fail("an object");
  }
  const auto member = value_->find(std::string(key));
  if (member == value_->end()) {
    return std::nullopt;
  }
  return JsonCursor(*member, file_, pointer_ + pointer_part(key));
}

std::vector<JsonCursor> JsonCursor::elements() const {
  if (!value_->is_array()) {
    fail("an array");
  }
  std::vector<JsonCursor> result;
  result.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    result.emplace_back((*value_)[i], file_, pointer_ + "/" + std::to_string(i));
  }
  return result;
}

std::vector<std::pair<std::string, JsonCursor>> JsonCursor::members() const {
  if (!value_->is_object()) {
    fail("an object");
  }
  std::vector<std::pair<std::string, JsonCursor>> result;
  result.reserve(value_->size());
  for (auto member = value_->begin(); member != value_->end(); ++member) {
    result.emplace_back(member.key(),
                        JsonCursor(member.value(), file_, pointer_ + pointer_part(member.key())));
  }
  return result;
}

std::string JsonCursor::string() const {
  if (!value_->is_string()) {
    fail("a string");
  }
  return value_->get<std::string>();
}

bool JsonCursor::boolean() const {
  if (!value_->is_boolean()) {
    fail("true or false");
  }
  return value_->get<bool>();
}

std::int64_t JsonCursor::integer(std::int64_t least, std::int64_t most) const {
  const auto refuse = [&] {
    fail("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  };
  std::int64_t result = 0;
  if (value_->is_number_unsigned()) {
    if (value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      refuse();
    }
    result = value_->get<std::int64_t>();
  } else if (value_->is_number_integer()) {
    result = value_->get<std::int64_t>();
  } else if (value_->is_number_float()) {
    // JSON does not tell 4.0 from 4; beyond 2^53 a float no longer says which integer is meant.
    const double number = value_->get<double>();
    if (std::trunc(number) != number || std::abs(number) > 0x1p53) {
      refuse();
    }
    result = static_cast<std::int64_t>(number);
  } else {
    refuse();
  }
  if (result < least || result > most) {
    refuse();
  }
  return result;
}

double JsonCursor::number(double least, double most) const {
  if (!value_->is_number()) {
    fail("a number " + bounds(least, most));
  }
  const double result = value_->get<double>();
  if (!(result >= least && result <= most)) {
    fail("a number " + bounds(least, most));
  }
  return result;
}

void JsonCursor::only(const std::vector<std::string_view>& known) const {
  constexpr std::size_t kListed = 16;
  for (const auto& [key, member] : members()) {
    bool found = false;
    for (std::string_view name : known) {
      found = found || key == name;
    }
    if (found) {
      continue;
    }
    std::string message = "unknown key" + did_you_mean(key, known);
    if (known.size() <= kListed) {
      message += "; the keys here are";
      for (std::string_view name : known) {
        message += " " + std::string(name);
      }
    }
    throw InputError(file_, member.pointer(), message);
  }
}

void require_schema(const JsonCursor& document, std::string_view kind, int newest) {
  constexpr std::string_view kOurs = "pipewright.";
  const std::string expected = std::string(kOurs) + std::string(kind) + "/1";
  if (!document.find("schema")) {
    throw InputError(document.file(), document.pointer(),
                     "expected a member \"schema\": \"" + expected + "\"; add it");
  }
  const JsonCursor schema = document.at("schema");
  const std::string found = schema.string();
  const std::size_t slash = found.find('/');
  const std::string family = found.substr(0, slash);
  for (int version = 1; version <= newest; ++version) {
    if (found == expected.substr(0, expected.size() - 1) + std::to_string(version)) return;
  }
  if (family == std::string(kOurs) + std::string(kind) && slash != std::string::npos) {
    throw InputError(
        document.file(), schema.pointer(),
        "this file has format version " +
            Json(found.substr(slash + 1)).dump(-1, ' ', true, Json::error_handler_t::replace) +
            "; this Pipewright reads version " +
            (newest == 1 ? "1 only" : "1 to " + std::to_string(newest)) + " (\"" + expected +
            "\")");
  }
  schema.fail("\"" + expected + "\"");
}

}  // namespace pipewright
