#include "tests/golden/vector_file.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace pipewright::tests {
namespace {

using nlohmann::json;
// The interpreter's, not the library's of the same names.
using reference::Batches;
using reference::Channel;
using reference::Costs;
using reference::Issue;
using reference::Policy;
using reference::Post;
using reference::Protocol;
using reference::RunOrder;

template <class T>
T one_of(const json& policy, const char* key, const std::map<std::string, T>& names, T otherwise) {
  return policy.contains(key) ? names.at(policy.at(key).get<std::string>()) : otherwise;
}

Protocol protocol_of(const json& policy, const char* kind) {
  using Credit = Protocol::Credit;
  if (!policy.contains(kind) || policy.at(kind) == "rendezvous") return {};
  const json& value = policy.at(kind);
  if (value == "eager") return {Credit::Unlimited, 0};
  if (value.contains("messages")) return {Credit::Messages, value.at("messages")};
  return {Credit::Bytes, value.at("bytes")};
}

Policy policy_of(const json& vector) {
  const json policy = vector.value("policy", json::object());
  Policy result;
  result.issue = one_of<Issue>(
      policy, "issue",
      {{"inline", Issue::Inline}, {"stream", Issue::Stream}, {"grouped", Issue::Grouped}},
      result.issue);
  result.channel = one_of<Channel>(policy, "channel",
                                   {{"rank", Channel::Rank},
                                    {"pair", Channel::Pair},
                                    {"edge", Channel::Edge},
                                    {"tag", Channel::Tag},
                                    {"direction", Channel::Direction}},
                                   result.channel);
  result.post = one_of<Post>(
      policy, "post",
      {{"early", Post::Early}, {"deferred", Post::Deferred}, {"at-start", Post::AtStart}},
      result.post);
  result.run_order = one_of<RunOrder>(
      policy, "run_order", {{"as-lowered", RunOrder::AsLowered}, {"even-odd", RunOrder::EvenOdd}},
      result.run_order);
  result.forward = protocol_of(policy, "SEND_F");
  result.backward = protocol_of(policy, "SEND_B");
  result.first_use =
      one_of<bool>(policy, "connect", {{"ready", false}, {"first-use", true}}, false);
  result.registered =
      one_of<bool>(policy, "buffers", {{"plain", false}, {"registered", true}}, false);
  result.in_flight = policy.value("in_flight", 0);
  result.device_queues = policy.value("device_queues", 0);
  result.batches = one_of<Batches>(
      policy, "batches",
      {{"apart", Batches::Apart}, {"mixed", Batches::Mixed}, {"joined", Batches::Joined}},
      result.batches);
  return result;
}

reference::CollectiveTerms collectives_of(const json& given) {
  reference::CollectiveTerms terms;
  const std::map<std::string, std::int64_t*> places = {
      {"launch", &terms.launch},
      {"step", &terms.step},
      {"part", &terms.part},
      {"bulk", &terms.bulk},
      {"bytes_per_second", &terms.bytes_per_second},
      {"per_node", &terms.per_node},
      {"across_step", &terms.across_step},
      {"across_bytes_per_second", &terms.across_bytes_per_second}};
  for (const auto& [key, value] : given.items()) *places.at(key) = value;
  return terms;
}

Costs costs_of(const json& vector) {
  Costs costs;
  const json given = vector.value("costs", json::object());
  for (const auto& [key, value] : given.items()) {
    if (key == "latency") {
      costs.latency = value;
    } else if (key == "bytes") {
      costs.bytes = value.get<std::map<std::string, std::int64_t>>();
    } else if (key == "parameter_bytes") {
      for (const auto& [stage, bytes] : value.items())
        costs.parameter_bytes[std::stoi(stage)] = bytes;
    } else if (key == "tied_bytes") {
      costs.tied_bytes = value;
    } else if (key == "bytes_per_second") {
      costs.bytes_per_second = value.get<std::int64_t>();
    } else if (key == "collectives") {
      costs.collectives = collectives_of(value);
    } else if (key == "actions") {
      costs.actions = value.get<std::map<std::string, std::int64_t>>();
    } else if (value.is_object()) {
      for (const auto& [stage, cost] : value.items())
        costs.kind_and_stage[key][std::stoi(stage)] = cost;
    } else {
      costs.kind[key] = value;
    }
  }
  return costs;
}

}  // namespace

std::vector<json> all_vectors() {
  std::vector<std::filesystem::path> files;
  for (const auto& file :
       std::filesystem::directory_iterator(PIPEWRIGHT_SOURCE_DIR "/tests/golden/vectors")) {
    if (file.path().extension() == ".json") files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<json> vectors;
  for (const auto& path : files) {
    std::ifstream file(path);
    for (const json& vector : json::parse(file)) vectors.push_back(vector);
  }
  return vectors;
}

Case case_of(const json& vector) {
  std::string csv;
  for (const json& row : vector.at("rows")) csv += row.get<std::string>() + "\n";
  for (const json& line : vector.value("heading", json::array()))
    csv = "# " + line.get<std::string>() + "\n" + csv;
  reference::Heading heading = reference::parse_heading(csv);
  if (vector.contains("groups")) heading.groups = vector.at("groups");
  return {reference::parse_order(csv), policy_of(vector), costs_of(vector),
          vector.value("fragment", false), heading};
}

std::string test_name(const json& vector) {
  std::string name;
  for (const char c : vector.at("name").get<std::string>()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  return name;
}

}  // namespace pipewright::tests
