// docs/hangs: every command of its page is run through the library, and verdict and sentences have
// to be the ones that the page shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/json.hpp"
#include "core/order/order_json.hpp"
#include "core/order/problems.hpp"
#include "core/program/lower.hpp"
#include "sim/engine.hpp"

namespace pipewright {
namespace hangs_test {

const std::string kRoot = std::string(PIPEWRIGHT_SOURCE_DIR) + "/";

/// One ```console block: the command's words, and what it prints with every space alike.
struct Shown {
  std::vector<std::string> words;
  std::string text;
};

std::string with_single_spaces(const std::string& text) {
  std::istringstream in(text);
  std::string result, word;
  while (in >> word) result += (result.empty() ? "" : " ") + word;
  return result;
}

std::vector<Shown> shown_checks() {
  std::ifstream page(kRoot + "docs/hangs/README.md");
  std::vector<Shown> all;
  std::string line;
  while (std::getline(page, line)) {
    if (line.rfind("$ pipewright check ", 0) != 0) continue;
    Shown& shown = all.emplace_back();
    std::istringstream words(line.substr(2));
    for (std::string word; words >> word;) shown.words.push_back(word);
    while (std::getline(page, line) && line != "```") shown.text += line + "\n";
    shown.text = with_single_spaces(shown.text);
  }
  return all;
}

struct Question {
  Order order;
  CommPolicy policy;
  LowerOptions options;
  CostTable costs;
};

Order read_file(const std::string& path) {
  const std::string text = read_text(kRoot + path);
  if (!path.ends_with(".json")) return read_order_csv(text, path);
  const Json document = parse_json(text, path);
  return read_order_json(JsonCursor(document, path));
}

/// The flags that the page uses; another one is a failure.
Question question_of(const Shown& shown) {
  Question question{
      .order = read_file(shown.words.at(2)), .policy = {}, .options = {}, .costs = {}};
  question.options.fragment = question.order.fragment;
  question.costs = CostTable::uniform(question.order.stages(), {});
  // As the command judges calls where no flag says more.
  if (!question.order.calls.empty()) {
    question.policy.device_queues = 1;
    question.policy.connect = Connect::FirstUse;
  }
  for (std::size_t k = 3; k < shown.words.size(); ++k) {
    const std::string& flag = shown.words[k];
    if (flag == "--fragment") {
      question.options.fragment = true;
      continue;
    }
    const std::string& value = shown.words.at(++k);
    if (flag == "--preset") {
      question.policy = comm_policy_preset(value);
    } else if (flag == "--issue") {
      question.policy.issue = parse_issue(value);
    } else if (flag == "--channel") {
      question.policy.channel = parse_channel(value);
    } else if (flag == "--protocol") {
      question.policy.send_f = question.policy.send_b = parse_protocol(value);
    } else if (flag == "--connect") {
      question.policy.connect = parse_connect(value);
    } else if (flag == "--batches") {
      question.policy.batches = parse_batches(value);
    } else if (flag == "--device-queues") {
      question.policy.device_queues = std::stoi(value);
    } else if (flag == "--message-bytes") {
      const auto boundaries = static_cast<std::size_t>(question.order.stages()) - 1;
      question.costs.activation_bytes.assign(boundaries, parse_bytes(value, flag));
      question.costs.gradient_bytes = question.costs.activation_bytes;
    } else {
      ADD_FAILURE() << flag << " is not a flag that this test knows";
    }
  }
  return question;
}

TEST(Hangs, EachFileGivesTheVerdictAndTheSentencesOfThePage) {
  int deadlocks = 0, fixed = 0, invalid = 0, mismatches = 0;
  for (const Shown& shown : shown_checks()) {
    SCOPED_TRACE(shown.text);
    const Question q = question_of(shown);
    std::vector<std::string> sentences;
    std::string verdict = "invalid";
    if (!q.options.fragment) sentences = problems_of(q.order);
    if (sentences.empty()) {
      const Program program = lower(q.order, q.policy, q.options);
      const WaitReport report = sim::check(program, q.costs);
      verdict = to_string(report.verdict);
      std::istringstream lines(describe(program, report));
      for (std::string line; std::getline(lines, line);) sentences.push_back(line);
      const bool explained =
          !report.cycle.empty() || !report.reasons.empty() || report.verdict == Verdict::Mismatch;
      EXPECT_EQ(explained, report.verdict != Verdict::Ok);
    }
    if (!q.options.fragment) {
      for (const std::string& note : notes_of(q.order)) sentences.push_back("note: " + note);
    }
    deadlocks += verdict == "deadlock" ? 1 : 0;
    fixed += verdict == "ok" ? 1 : 0;
    invalid += verdict == "invalid" ? 1 : 0;
    mismatches += verdict == "mismatch" ? 1 : 0;
    if (verdict != "ok") {
      std::transform(verdict.begin(), verdict.end(), verdict.begin(),
                     [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    }
    EXPECT_NE((" " + shown.text + " ").find(" " + verdict + " "), std::string::npos) << verdict;
    for (const std::string& sentence : sentences) {
      EXPECT_NE(shown.text.find(with_single_spaces(sentence)), std::string::npos) << sentence;
    }
  }
  EXPECT_EQ(deadlocks, 14);
  EXPECT_EQ(fixed, 9);
  EXPECT_EQ(invalid, 1);
  EXPECT_EQ(mismatches, 2);
}

TEST(Hangs, EveryFileIsOnThePage) {
  std::set<std::string> on_page;
  for (const Shown& shown : shown_checks()) {
    on_page.insert(std::filesystem::path(shown.words.at(2)).filename().string());
  }
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "docs/hangs")) {
    if (entry.path().extension() != ".md") files.insert(entry.path().filename().string());
  }
  EXPECT_EQ(on_page, files);
}

/// pytorch 188833: nothing hangs, but one queue a rank makes ready sends wait for a receive.
TEST(Hangs, OneQueueARankStallsWhereOneAnEdgeDoesNot) {
  const Order order = read_file("docs/hangs/pytorch-188833.csv");
  StageCosts each{.f = Nanoseconds(10), .i = Nanoseconds(10), .w = Nanoseconds(10)};
  each.b = Nanoseconds(20);
  const CostTable costs = CostTable::uniform(order.stages(), each, Nanoseconds(5));
  const auto step = [&](const CommPolicy& policy) {
    const sim::Result result = sim::simulate(lower(order, policy), costs);
    EXPECT_TRUE(result.finished);
    return result.timeline.makespan_ns;
  };
  EXPECT_EQ(step({.channel = Channel::Rank}), 720);
  EXPECT_EQ(step({.channel = Channel::Edge}), 640);
  EXPECT_EQ(step(comm_policy_preset("ideal")), 640);
}

}  // namespace hangs_test
}  // namespace pipewright
