#include "planner/graph_partition/pipedream_profile.hpp"

#include "core/error.hpp"
#include "core/json_fields.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostStates = 4096;
constexpr double kMostNumber = 1e18;
constexpr std::string_view kCompute = "cumulative_compute_s";

bool is_one_profile(const JsonCursor& value) {
  return value.find("states").has_value() || value.find(kCompute).has_value();
}

/// As many numbers as states; where they are running sums, none below the one before.
std::vector<double> read_numbers(const JsonCursor& list, std::size_t states, bool sums) {
  std::vector<double> numbers;
  for (const JsonCursor& value : list.elements()) {
    const double number = value.number(0, kMostNumber);
    if (sums && !numbers.empty() && number < numbers.back()) {
      value.fail("a sum that is not below the one before it");
    }
    numbers.push_back(number);
  }
  if (numbers.size() != states) list.fail("as many numbers as states, " + std::to_string(states));
  return numbers;
}

std::vector<bool> read_ranges(const JsonCursor& list, std::size_t state, std::size_t states) {
  std::vector<bool> flags(states, false);
  for (const JsonCursor& value : list.elements()) {
    const std::vector<JsonCursor> ends = value.elements();
    if (ends.size() != 2) value.fail("[first state, one past the last]");
    const auto end = static_cast<std::size_t>(ends[1].integer(0, static_cast<int>(state)));
    for (auto before = static_cast<std::size_t>(ends[0].integer(0, static_cast<int>(end)));
         before < end; ++before) {
      flags[before] = true;
    }
  }
  return flags;
}

}  // namespace

bool is_pipedream_profile(const JsonCursor& document) {
  if (!document.value().is_object()) return false;
  if (is_one_profile(document)) return true;
  if (document.find("nodes")) return false;
  for (const auto& [name, member] : document.members()) {
    if (member.value().is_object() && is_one_profile(member)) return true;
  }
  return false;
}

std::vector<std::string> pipedream_models(const JsonCursor& document) {
  std::vector<std::string> names;
  if (is_one_profile(document)) return names;
  for (const auto& [name, member] : document.members()) names.push_back(name);
  return names;
}

PipeDreamProfile read_pipedream_profile(const JsonCursor& value) {
  value.only({"states", kCompute, "cumulative_parameter_bytes", "output_activation_bytes",
              "predecessors"});
  const auto states = static_cast<std::size_t>(read_count(value.at("states"), 1, kMostStates));
  PipeDreamProfile profile;
  profile.compute_until = read_numbers(value.at(kCompute), states, true);
  profile.parameters_until = read_numbers(value.at("cumulative_parameter_bytes"), states, true);
  profile.output_bytes = read_numbers(value.at("output_activation_bytes"), states, false);
  const JsonCursor predecessors = value.at("predecessors");
  if (predecessors.value().is_string()) {
    read_choice<int>(predecessors, {{"all_lower", 0}});
    return profile;
  }
  for (const JsonCursor& list : predecessors.elements()) {
    if (profile.predecessors.size() == states) break;
    profile.predecessors.push_back(read_ranges(list, profile.predecessors.size(), states));
  }
  if (predecessors.elements().size() != states) {
    predecessors.fail("a list for each of the " + std::to_string(states) + " states");
  }
  return profile;
}

}  // namespace pipewright::planner
