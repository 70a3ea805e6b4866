#include "planner/graph_partition/pipedream_profile.hpp"

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright::planner {
namespace {

constexpr int kMostStates = 4096;
constexpr double kMostProfiledNumber = 1e18;
/// Branches are added up in several orders, so equal sums may differ in their last digits.
constexpr double kSumError = 1e-9;
constexpr std::string_view kCompute = "cumulative_compute_s";
constexpr std::string_view kParameters = "cumulative_parameter_bytes";

bool is_one_profile(const JsonCursor& value) {
  return value.find("states").has_value() || value.find(kCompute).has_value();
}

/// As many numbers as states.
std::vector<double> read_numbers(const JsonCursor& list, std::size_t states) {
  std::vector<double> numbers;
  for (const JsonCursor& value : list.elements())
    numbers.push_back(value.number(0, kMostProfiledNumber));
  if (numbers.size() != states) list.fail("as many numbers as states, " + std::to_string(states));
  return numbers;
}

/// A state's sum counts all states before it, so it is not below that of any of them. Neighbours in
/// the file may lie on two branches of a graph, of which neither counts the other.
void check_sums(const JsonCursor& list, const std::vector<double>& sums,
                const PipeDreamProfile& profile) {
  for (std::size_t state = 1; state < sums.size(); ++state) {
    for (std::size_t before = 0; before < state; ++before) {
      const bool counted = precedes(profile, before, state);
      if (!counted || sums[state] >= sums[before] * (1 - kSumError)) continue;
      list.elements()[state].fail("a sum that is not below that of state " +
                                  std::to_string(before) + ", which comes before it");
    }
  }
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

/// Empty where every lower state may come before.
std::vector<std::vector<bool>> read_predecessors(const JsonCursor& value, std::size_t states) {
  std::vector<std::vector<bool>> rows;
  if (value.value().is_string()) {
    read_choice<int>(value, {{"all_lower", 0}});
    return rows;
  }
  const std::vector<JsonCursor> lists = value.elements();
  if (lists.size() != states) {
    value.fail("a list for each of the " + std::to_string(states) + " states");
  }
  for (const JsonCursor& list : lists) rows.push_back(read_ranges(list, rows.size(), states));
  return rows;
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
  value.only({"states", kCompute, kParameters, "output_activation_bytes", "predecessors"});
  const auto states = static_cast<std::size_t>(read_count(value.at("states"), 1, kMostStates));
  PipeDreamProfile profile;
  const JsonCursor compute = value.at(kCompute), parameters = value.at(kParameters);
  profile.compute_until = read_numbers(compute, states);
  profile.parameters_until = read_numbers(parameters, states);
  profile.output_bytes = read_numbers(value.at("output_activation_bytes"), states);
  profile.predecessors = read_predecessors(value.at("predecessors"), states);
  check_sums(compute, profile.compute_until, profile);
  check_sums(parameters, profile.parameters_until, profile);
  return profile;
}

}  // namespace pipewright::planner
