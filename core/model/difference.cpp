#include "core/model/difference.hpp"

#include "core/base/json.hpp"

namespace pipewright {

std::string model_difference(const Model& ours, const std::string& our_name, const Model& theirs,
                             const std::string& their_name) {
  return document_difference(to_json(ours), our_name, to_json(theirs), their_name);
}

std::string document_difference(const Json& first, const std::string& our_name, const Json& second,
                                const std::string& their_name) {
  const Json patch = Json::diff(first, second);
  if (patch.empty()) return "";
  const std::string pointer = patch.front().at("path").get<std::string>();
  const auto shown = [&](const Json& model) {
    const Json::json_pointer place(pointer);
    return model.contains(place) && model.at(place).is_primitive() ? model.at(place).dump()
                                                                   : std::string("something else");
  };
  return "at " + pointer + " " + our_name + " has " + shown(first) + ", " + their_name + " " +
         shown(second);
}

}  // namespace pipewright
