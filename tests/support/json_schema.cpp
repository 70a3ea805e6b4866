#include "tests/support/json_schema.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>
#include <stdexcept>

namespace pipewright::test {

namespace {

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  }
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null());
}

bool is_one_of(const Json& value, const Json& list) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// 64 bits of mantissa: exact for every integer of JSON, signed or not.
long double amount(const Json& value) {
  return value.is_number_unsigned()  ? static_cast<long double>(value.get<std::uint64_t>())
         : value.is_number_integer() ? static_cast<long double>(value.get<std::int64_t>())
                                     : static_cast<long double>(value.get<double>());
}

/// Keywords about the size or the text of a value; true if it agrees or they do not apply.
bool agrees(const std::string& keyword, const Json& argument, const Json& value) {
  if (keyword == "minimum") {
    return !value.is_number() || amount(value) >= amount(argument);
  }
  if (keyword == "exclusiveMinimum") {
    return !value.is_number() || amount(value) > amount(argument);
  }
  if (keyword == "maximum") {
    return !value.is_number() || amount(value) <= amount(argument);
  }
  if (keyword == "minItems") {
    return !value.is_array() || value.size() >= argument.get<std::size_t>();
  }
  if (keyword == "maxItems") {
    return !value.is_array() || value.size() <= argument.get<std::size_t>();
  }
  if (keyword == "minLength") {
    return !value.is_string() || value.get<std::string>().size() >= argument.get<std::size_t>();
  }
  if (keyword == "maxLength") {
    return !value.is_string() || value.get<std::string>().size() <= argument.get<std::size_t>();
  }
  if (keyword == "pattern") {
    return !value.is_string() ||
           std::regex_search(value.get<std::string>(), std::regex(argument.get<std::string>()));
  }
  throw std::logic_error("the schema uses a keyword that the test does not check: " + keyword);
}

}  // namespace

SchemaSet::SchemaSet(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    files_[entry.path().filename().string()] = parse_json(read_text(path), path);
  }
}

std::vector<std::string> SchemaSet::problems(const std::string& kind, const Json& document) const {
  const std::string file = kind + ".schema.json";
  std::vector<std::string> result;
  check({&files_.at(file), file}, document, "", result);
  return result;
}

SchemaSet::Place SchemaSet::resolve(const std::string& reference, const std::string& file) const {
  const std::size_t hash = reference.find('#');
  const std::string target = hash == 0 ? file : reference.substr(0, hash);
  const Json::json_pointer pointer(hash == std::string::npos ? std::string()
                                                             : reference.substr(hash + 1));
  return {&files_.at(target).at(pointer), target};
}

void SchemaSet::check(const Place& place, const Json& value, const std::string& pointer,
                      std::vector<std::string>& problems) const {
  for (const auto& [keyword, argument] : place.schema->items()) {
    check_keyword(keyword, argument, place, value, pointer, problems);
  }
}

void SchemaSet::check_object(const Place& place, const Json& value, const std::string& pointer,
                             std::vector<std::string>& problems) const {
  const Json none = Json::object();
  const Json& known = place.schema->contains("properties") ? place.schema->at("properties") : none;
  for (const auto& [key, member] : value.items()) {
    const std::string where = pointer + "/" + key;
    if (known.contains(key)) {
      check({&known.at(key), place.file}, member, where, problems);
    } else if (place.schema->contains("additionalProperties")) {
      const Json& others = place.schema->at("additionalProperties");
      if (others.is_object()) {
        check({&others, place.file}, member, where, problems);
      } else if (!others.get<bool>()) {
        problems.push_back(where + ": not in the schema");
      }
    }
  }
}

void SchemaSet::check_keyword(const std::string& keyword, const Json& argument, const Place& place,
                              const Json& value, const std::string& pointer,
                              std::vector<std::string>& problems) const {
  static const Json notes = {"$schema", "$id", "$defs", "title", "description"};
  if (is_one_of(keyword, notes)) {
    return;
  }
  if (keyword == "$ref") {
    check(resolve(argument.get<std::string>(), place.file), value, pointer, problems);
  } else if (keyword == "oneOf" || keyword == "anyOf") {
    int matches = 0;
    std::string reasons;
    for (const Json& choice : argument) {
      std::vector<std::string> one;
      check({&choice, place.file}, value, pointer, one);
      matches += one.empty() ? 1 : 0;
      reasons += one.empty() ? "" : " | " + one.front();
    }
    if (matches == 0 || (matches > 1 && keyword == "oneOf")) {
      problems.push_back(pointer + ": agrees with " + std::to_string(matches) +
                         " of the alternatives" + reasons);
    }
  } else if (keyword == "propertyNames") {
    if (!value.is_object()) return;
    for (const auto& [name, member] : value.items())
      check({&argument, place.file}, Json(name), pointer + "/" + name, problems);
  } else if (keyword == "type") {
    const Json types = argument.is_array() ? argument : Json::array({argument});
    bool fits = false;
    for (const Json& type : types) {
      fits = fits || has_type(value, type.get<std::string>());
    }
    if (!fits) {
      problems.push_back(pointer + ": not of type " + argument.dump());
    }
  } else if (keyword == "const" || keyword == "enum") {
    if (!is_one_of(value, keyword == "enum" ? argument : Json::array({argument}))) {
      problems.push_back(pointer + ": not " + argument.dump());
    }
  } else if (keyword == "properties" || keyword == "additionalProperties") {
    const bool again = keyword == "additionalProperties" && place.schema->contains("properties");
    if (value.is_object() && !again) {
      check_object(place, value, pointer, problems);
    }
  } else if (keyword == "required") {
    for (const Json& key : argument) {
      if (value.is_object() && !value.contains(key.get<std::string>())) {
        problems.push_back(pointer + ": lacks " + key.dump());
      }
    }
  } else if (keyword == "items") {
    for (std::size_t k = 0; value.is_array() && k < value.size(); ++k) {
      check({&argument, place.file}, value[k], pointer + "/" + std::to_string(k), problems);
    }
  } else if (!agrees(keyword, argument, value)) {
    problems.push_back(pointer + ": against " + keyword + " " + argument.dump());
  }
}

}  // namespace pipewright::test
