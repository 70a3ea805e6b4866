// The examples of docs/semantics.md, each read by the interpreter of tests/reference/ and by the
// library. A section without an example fails too.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/golden/vector_file.hpp"
#include "tests/reference/interpreter.hpp"

namespace pipewright::tests {
namespace semantics_examples_test {

using nlohmann::json;

struct Example {
  std::string section;  // "2.1"
  int line = 0;
  std::map<std::string, std::string>
      fields;  // order, is, policy, costs, parts, mesh, devices, sharding, gives
};

struct Page {
  std::vector<std::string> sections;
  std::vector<Example> examples;
};

Page read_page() {
  Page page;
  std::ifstream file(PIPEWRIGHT_SOURCE_DIR "/docs/semantics.md");
  static const std::regex heading(R"(^##+ ([0-9.]+?)\.? .*)");
  std::smatch found;
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (std::regex_match(line, found, heading)) page.sections.push_back(found[1]);
    if (line == "```example") {
      inside = true;
      page.examples.push_back({page.sections.back(), number, {}});
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      const std::size_t space = line.find(' ');
      const std::size_t text = line.find_first_not_of(' ', space);
      std::string& field = page.examples.back().fields[line.substr(0, space)];
      field += (field.empty() ? "" : "\n") + line.substr(text);
    }
  }
  return page;
}

std::vector<std::string> pieces(const std::string& text, char between) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string piece; std::getline(stream, piece, between);) {
    const std::size_t begin = piece.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    found.push_back(piece.substr(begin, piece.find_last_not_of(' ') - begin + 1));
  }
  return found;
}

json protocol(const std::string& text) {
  if (text.rfind("eager:", 0) != 0) return text;
  if (text.back() == 'B') return {{"bytes", std::stoi(text.substr(6))}};
  return {{"messages", std::stoi(text.substr(6))}};
}

/// As a vector of tests/golden/vectors has it.
json vector_of(const Example& example) {
  json vector = {{"rows", json::array()}, {"policy", json::object()}, {"costs", json::object()}};
  for (std::string rank : pieces(example.fields.at("order"), '|')) {
    std::replace(rank.begin(), rank.end(), ' ', ',');
    vector["rows"].push_back(rank);
  }
  for (const char* field : {"parts", "mesh", "devices", "sharding"}) {
    if (example.fields.count(field) == 0) continue;
    for (const std::string& line : pieces(example.fields.at(field), '\n'))
      vector["heading"].push_back(field + (" " + line));
  }
  vector["fragment"] = example.fields.count("is") != 0;
  const auto given = [&](const char* field) {
    return example.fields.count(field) != 0 ? pieces(example.fields.at(field), ' ')
                                            : std::vector<std::string>{};
  };
  for (const std::string& setting : given("policy")) {
    const std::size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
    const bool is_protocol = key == "SEND_F" || key == "SEND_B";
    vector["policy"][key] = is_protocol                                    ? protocol(value)
                            : key == "in_flight" || key == "device_queues" ? json(std::stoi(value))
                                                                           : json(value);
  }
  for (const std::string& setting : given("costs")) {
    const std::size_t equals = setting.find('='), colon = setting.find(':');
    const std::int64_t value = std::stoll(setting.substr(equals + 1));
    if (colon == std::string::npos) {
      vector["costs"][setting.substr(0, equals)] = value;
    } else {
      vector["costs"][setting.substr(0, colon)][setting.substr(colon + 1, equals - colon - 1)] =
          value;
    }
  }
  return vector;
}

/// What `gives` may say of a result, each as a sentence.
std::set<std::string> sentences(const reference::Result& result) {
  std::set<std::string> said = {to_string(result.verdict),
                                "makespan " + std::to_string(result.makespan)};
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    const auto& rank = result.ranks[r];
    const std::string of = " " + std::to_string(r) + ":";
    std::string list = "list" + of;
    for (const auto& timed : rank.instructions) {
      list += " " + timed.instruction;
      said.insert(timed.instruction +
                  (timed.end ? " ends at " + std::to_string(*timed.end) : " never ends"));
    }
    said.insert(list);
    said.insert("busy" + of + " " + std::to_string(rank.busy));
    said.insert("span" + of + " " + std::to_string(rank.span));
    said.insert("peak" + of + " " + std::to_string(rank.peak_activations));
  }
  for (const auto& e : result.cause) {
    said.insert("cause " + std::to_string(e.rank) + " " + e.instruction + " waits for " +
                e.waits_for + (e.through.empty() ? "" : " through " + e.through) + " behind " +
                e.behind);
  }
  for (const auto& e : result.cycle) {
    said.insert("cycle " + std::to_string(e.rank) + " " + e.instruction + " waits for " +
                e.waits_for + " behind " + e.behind);
  }
  return said;
}

TEST(SemanticsExamples, EachGivesWhatThePageSays) {
  const Page page = read_page();
  for (const Example& example : page.examples) {
    SCOPED_TRACE("docs/semantics.md:" + std::to_string(example.line));
    const Case c = case_of(vector_of(example));
    const auto result = reference::interpret(c.order, c.policy, c.costs, c.fragment, c.heading);
    const std::set<std::string> said = sentences(result);
    std::string all;
    for (const std::string& sentence : said) all += sentence + "\n";
    for (const std::string& wanted : pieces(example.fields.at("gives"), ';'))
      EXPECT_TRUE(said.count(wanted)) << wanted << "\nbut:\n" << all << result.complaint;
    EXPECT_EQ(of_library(c), of_reference(c)) << shown(c);
  }
}

TEST(SemanticsExamples, EverySectionHasOne) {
  const Page page = read_page();
  ASSERT_GT(page.sections.size(), 12U);
  for (const std::string& section : page.sections) {
    const bool has_parts =
        std::any_of(page.sections.begin(), page.sections.end(),
                    [&](const std::string& other) { return other.rfind(section + ".", 0) == 0; });
    const bool shown = std::any_of(page.examples.begin(), page.examples.end(),
                                   [&](const Example& e) { return e.section == section; });
    EXPECT_TRUE(has_parts || shown) << "section " << section << " of docs/semantics.md";
  }
}

}  // namespace semantics_examples_test
}  // namespace pipewright::tests
