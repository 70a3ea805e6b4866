// A flag changes what it names and nothing else. Every flag of simulate, check, compare, analyze
// and report has a statement here; the commands' own tables are walked, so that a flag without one
// fails.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "tests/property/subject_facts.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/draw.hpp"
#include "tools/cli/command_line.hpp"

namespace pipewright::tools {
namespace flags_test {

using test::Draw;
using tests::Facts;
using tests::facts_of;
using tests::random_plan;

/// A value for a flag, and the facts as they have to be with it.
struct Given {
  std::string value;
  Facts expected;
};
using Change = Given (*)(const Facts& before, Draw& draw);

std::string stage_key(const std::string& table, int stage, const std::string& field) {
  return table + "." + std::to_string(stage) + "." + field;
}

std::int64_t number(const Facts& facts, const std::string& key) {
  return std::stoll(facts.at(key));
}

/// One value for all stages, or one for each, as a flag has them; and into `facts`.
std::string draw_list(Facts& facts, const std::string& table, const std::string& field,
                      Draw& draw) {
  const auto stages = static_cast<int>(number(facts, "stages"));
  const bool each = draw.coin();
  std::string text;
  int value = 1 + draw.below(1'000'000);
  for (int s = 0; s < stages; ++s) {
    if (each && s > 0) value = 1 + draw.below(1'000'000);
    if (each || s == 0) text += (s > 0 ? ":" : "") + std::to_string(value);
    facts[stage_key(table, s, field)] = std::to_string(value);
  }
  return field + "=" + text;
}

/// docs/cli.md: where a stage's B is I + W it goes on to be.
void keep_fused(Facts& after, const Facts& before, bool i, bool w, bool b) {
  for (int s = 0; s < number(before, "stages"); ++s) {
    const auto was = [&](const char* field) {
      return number(before, stage_key("costs", s, field));
    };
    const auto is = [&](const char* field) { return number(after, stage_key("costs", s, field)); };
    const auto put = [&](const char* field, std::int64_t value) {
      after[stage_key("costs", s, field)] = std::to_string(value);
    };
    if (was("B") != was("I") + was("W")) continue;
    if (!b) {
      put("B", is("I") + is("W"));
    } else if (!i && !w) {
      put("W", was("B") > 0 ? is("B") * was("W") / was("B") : is("B") / 2);
      put("I", is("B") - is("W"));
    } else if (!i) {
      put("I", std::max<std::int64_t>(0, is("B") - is("W")));
    } else if (!w) {
      put("W", std::max<std::int64_t>(0, is("B") - is("I")));
    }
  }
}

Given some_costs(const Facts& before, Draw& draw) {
  Given given{"", before};
  std::map<std::string, bool> named;
  const std::vector<std::string> fields = {"F", "I", "W", "B", "OPT", "reduce", "unshard"};
  const std::string always = fields[static_cast<std::size_t>(draw.below(7))];
  for (const std::string& field : fields) {
    if (field != always && draw.below(4) > 0) continue;
    named[field] = true;
    given.value +=
        (given.value.empty() ? "" : ",") + draw_list(given.expected, "costs", field, draw);
  }
  keep_fused(given.expected, before, named["I"], named["W"], named["B"]);
  if (draw.below(4) == 0) {
    given.value += ",FB=77";
    given.expected["pair"] = "77";
  }
  if (draw.below(4) > 0) return given;
  given.value += ",comm=1234";
  for (auto& [key, value] : given.expected) {
    if (key.starts_with("route.") && key.ends_with(".latency")) value = "1234";
  }
  return given;
}

Given some_memory(const Facts& before, Draw& draw) {
  Given given{"", before};
  std::map<std::string, bool> named;
  for (const char* field : {"F", "I", "W", "constant", "version"}) {
    if (draw.below(3) > 0) continue;
    named[field] = true;
    given.value +=
        (given.value.empty() ? "" : ",") + draw_list(given.expected, "memory", field, draw);
  }
  if (given.value.empty() || draw.coin()) {
    given.value += std::string(given.value.empty() ? "" : ",") + "limit=10GiB";
    given.expected["limit"] = "10737418240";
  }
  for (int s = 0; s < number(before, "stages") && !named["W"]; ++s) {
    const auto left = [&](const Facts& facts) {
      return -number(facts, stage_key("memory", s, "F")) -
             number(facts, stage_key("memory", s, "I"));
    };
    // What F and I left went at W, and still does.
    if (number(before, stage_key("memory", s, "W")) == left(before))
      given.expected[stage_key("memory", s, "W")] = std::to_string(left(given.expected));
  }
  return given;
}

/// Every plan has a rank 0, which updates its weights.
Given some_action_times(const Facts& before, Draw& draw) {
  static const test::Folder kFolder;
  Given given{(kFolder.path() / "times.csv").string(), before};
  given.expected["actions"] =
      "replica,rank,action,ns\n0,0,OPT," + std::to_string(draw.below(1'000'000)) + "\n";
  write_file(given.value, given.expected["actions"]);
  return given;
}

Given some_message(const Facts& before, Draw& draw) {
  Given given{std::to_string(1 + draw.below(1'000'000)), before};
  for (auto& [key, value] : given.expected) {
    if (key.starts_with("activation.") || key.starts_with("gradient.")) value = given.value;
  }
  return given;
}

Given some_preset(const Facts& before, Draw& draw) {
  const auto& presets = comm_policy_presets();
  const auto& preset =
      presets[static_cast<std::size_t>(draw.below(static_cast<int>(presets.size())))];
  Given given{std::string(preset.name), before};
  tests::put_policy(given.expected, preset.policy);
  return given;
}

Given some_protocol(const Facts& before, Draw& draw) {
  const std::string f = draw.one_of("rendezvous", "eager", "eager:2", "eager:4096B");
  const std::string b = draw.one_of("rendezvous", "eager", "eager:3", "eager:512B");
  Given given{f + "," + b, before};
  given.expected["policy.send_f"] = f;
  given.expected["policy.send_b"] = b;
  return given;
}

/// A flag that holds one field of the policy, under the field's own words.
template <const char* const& Key, const char* const&... Words>
Given policy_field(const Facts& before, Draw& draw) {
  const std::string word = draw.one_of(Words...);
  Given given{word, before};
  given.expected[std::string("policy.") + Key] = word;
  return given;
}

/// Of the subject nothing.
Given nothing(const Facts& before, Draw&) { return {"", before}; }

enum class Says : std::uint8_t {
  Reading,       // `change` says what becomes of what is read
  Members,       // it writes files, or adds members to the result: the others stay
  Refused,       // it belongs to other inputs than a plan, and is refused with one
  Presentation,  // how text looks, or no run at all
};
struct Statement {
  Says says = Says::Reading;
  Change change = nothing;
  std::string value;                 // of Members and Refused
  std::vector<std::string> members;  // that may be new or other than before
};

Statement change(Change how) { return {.change = how}; }
Statement refused(const std::string& value) { return {.says = Says::Refused, .value = value}; }
Statement members(const std::string& value, std::vector<std::string> names = {}) {
  return {.says = Says::Members, .value = value, .members = std::move(names)};
}

Given in_flight(const Facts& before, Draw& draw) {
  Given given{std::to_string(draw.below(9)), before};
  given.expected["policy.in_flight"] = given.value;
  return given;
}

Given device_queues(const Facts& before, Draw& draw) {
  Given given{std::to_string(draw.below(9)), before};
  given.expected["policy.device_queues"] = given.value;
  return given;
}

constexpr const char *kIssue = "issue", *kChannel = "channel", *kPost = "post",
                     *kRunOrder = "run_order", *kConnect = "connect", *kBuffers = "buffers",
                     *kInline = "inline", *kStream = "stream", *kGrouped = "grouped",
                     *kRank = "rank", *kPair = "pair", *kEdge = "edge", *kTag = "tag",
                     *kEarly = "early", *kDeferred = "deferred", *kAtStart = "at-start",
                     *kAsLowered = "as-lowered", *kEvenOdd = "even-odd", *kReady = "ready",
                     *kFirstUse = "first-use", *kPlain = "plain", *kRegistered = "registered",
                     *kDirection = "direction", *kBatches = "batches", *kApart = "apart",
                     *kJoined = "joined", *kMixed = "mixed";

/// What each flag says where a plan is read.
const std::map<std::string, Statement, std::less<>>& statements() {
  static const std::map<std::string, Statement, std::less<>> kStatements = {
      {"--cost", change(some_costs)},
      {"--mem", change(some_memory)},
      {"--rank-cost", change(some_costs)},  // a rank has one stage in these plans
      {"--rank-mem", change(some_memory)},
      {"--costs", change(some_action_times)},
      {"--message-bytes", change(some_message)},
      {"--collectives", refused("fitted.json")},  // a plan has its cluster's
      {"--preset", change(some_preset)},
      {"--issue", change(policy_field<kIssue, kInline, kStream, kGrouped>)},
      {"--channel", change(policy_field<kChannel, kRank, kPair, kEdge, kTag, kDirection>)},
      {"--protocol", change(some_protocol)},
      {"--post", change(policy_field<kPost, kEarly, kDeferred, kAtStart>)},
      {"--run-order", change(policy_field<kRunOrder, kAsLowered, kEvenOdd>)},
      {"--connect", change(policy_field<kConnect, kReady, kFirstUse>)},
      {"--buffers", change(policy_field<kBuffers, kPlain, kRegistered>)},
      {"--batches", change(policy_field<kBatches, kApart, kJoined, kMixed>)},
      {"--in-flight", change(in_flight)},
      {"--device-queues", change(device_queues)},
      {"--fragment", change(nothing)},     // an order that a plan brings is whole
      {"--expand", change(nothing)},       // each rank of these plans is one device
      {"--megatron", refused("overlap")},  // they are not interleaved
      {"--schedule", refused("1f1b")},
      {"--pp", refused("2")},
      {"--dp", refused("2")},
      {"--micro-batches", refused("4")},
      {"--vpp", refused("1")},
      {"--param", refused("group=2")},
      {"--jobs", refused("fused")},
      {"--budget", refused("1s")},
      {"--prove", refused("")},
      {"--objective", refused("span")},
      {"--placement", refused("loop")},
      {"--seed", refused("3")},
      {"--samples", refused("10")},  // without --profile
      {"--profile", refused("profile.json")},
      {"--sample-seed", refused("1")},
      {"--fit", refused("profile.json")},
      {"--step", refused("0")},
      {"--costs-out", refused("costs.csv")},
      {"--merged", refused("job.tar")},
      {"--watch", refused("")},
      {"--out", refused("out.json")},
      {"--fail-if", members("step>1%")},
      {"--trace", members("t.json")},
      {"--svg", members("t.svg")},
      {"--html", members("t.html")},
      {"--chakra", {.says = Says::Presentation}},  // refused where there are collectives
      {"--width", {.says = Says::Presentation}},
      {"--emit-order", members("", {"order"})},
      {"--what-if", members("", {"what_if"})},
      {"--suppose", members("rank:0=0.9", {"what_if"})},
      {"--fix", members("", {"fix"})},
      {"--matrix", members("", {"matrix", "least_credit"})},
      {"--json", {.says = Says::Presentation}},
      {"--color", {.says = Says::Presentation}},
      {"--quiet", {.says = Says::Presentation}},
      {"--help", {.says = Says::Presentation}},
  };
  return kStatements;
}

Command command_named(const std::string& name) {
  for (Command& command : all_commands()) {
    if (command.name == name) return command;
  }
  throw Bug("no command " + name);
}

const std::vector<std::string>& judged_commands() {
  static const std::vector<std::string> kNames = {"simulate", "check", "analyze", "compare",
                                                  "report"};
  return kNames;
}

std::vector<Flag> all_flags(const Command& command) {
  std::vector<Flag> flags = command.flags;
  for (Flag& flag : common_flags()) flags.push_back(std::move(flag));
  return flags;
}

Session quiet_session() { return {Terminal{}, false, true}; }

Facts facts_with(const Command& command, const std::string& file,
                 const std::vector<std::string>& flags) {
  std::vector<std::string> words = {file};
  words.insert(words.end(), flags.begin(), flags.end());
  const Arguments arguments = parse_arguments(command, words);
  Session session = quiet_session();
  return facts_of(read_subject(arguments, Purpose::Predict, session));
}

class FlagsOfPlans : public testing::Test {
 protected:
  std::string save(const Plan& plan) const {
    const std::string path = (folder_.path() / "plan.json").string();
    save_plan(plan, path);
    return path;
  }
  test::Folder folder_;
};

TEST_F(FlagsOfPlans, EveryFlagOfTheseCommandsSaysWhatItChanges) {
  for (const std::string& name : judged_commands()) {
    for (const Flag& flag : all_flags(command_named(name))) {
      EXPECT_TRUE(statements().contains(flag.name))
          << "the flag " << flag.name << " of " << name
          << " has no statement in this file: say what it changes where a plan is read";
    }
  }
}

TEST_F(FlagsOfPlans, AFlagChangesWhatItNamesAndNothingElse) {
  for (const std::string name : {"simulate", "check", "analyze", "report"}) {
    const Command command = command_named(name);
    std::map<std::string_view, int> changed;
    for (std::uint32_t seed = 1; seed <= 12; ++seed) {
      Draw draw(seed);
      const std::string file = save(random_plan(draw));
      const Facts before = facts_with(command, file, {});
      for (const Flag& flag : command.flags) {
        const auto statement = statements().find(flag.name);
        if (statement == statements().end() || statement->second.says != Says::Reading) continue;
        const Given given = statement->second.change(before, draw);
        if (statement->second.change != nothing) changed[flag.name] += given.expected != before;
        std::vector<std::string> words = {std::string(flag.name)};
        if (!flag.argument.empty()) words.push_back(given.value);
        EXPECT_EQ(tests::difference(given.expected, facts_with(command, file, words)), "")
            << name << " " << flag.name << " " << given.value << ", seed " << seed;
      }
    }
    EXPECT_EQ(changed.size(), 17U) << name;
    for (const auto& [flag, times] : changed) EXPECT_GT(times, 0) << name << " " << flag;
  }
}

TEST_F(FlagsOfPlans, TwoFlagsChangeWhatEachOfThemChanges) {
  const Command command = command_named("simulate");
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    Draw draw(seed);
    const std::string file = save(random_plan(draw));
    const Facts before = facts_with(command, file, {});
    // A preset stands before the flags that change a field of it, wherever it is written.
    const bool with_preset = draw.coin();
    const Given preset = some_preset(before, draw);
    const Given costs = some_costs(with_preset ? preset.expected : before, draw);
    const Given memory = some_memory(costs.expected, draw);
    const Given flight = in_flight(memory.expected, draw);
    std::vector<std::string> words = {"--in-flight", flight.value, "--mem",
                                      memory.value,  "--cost",     costs.value};
    if (with_preset) words.insert(words.end(), {"--preset", preset.value});
    const Facts& expected = flight.expected;
    EXPECT_EQ(tests::difference(expected, facts_with(command, file, words)), "") << "seed " << seed;
  }
}

TEST_F(FlagsOfPlans, WhatBelongsToOtherInputsIsRefusedByName) {
  Draw draw(5);
  save(random_plan(draw));
  for (const std::string& name : judged_commands()) {
    for (const Flag& flag : all_flags(command_named(name))) {
      const auto statement = statements().find(flag.name);
      if (statement == statements().end()) continue;
      const bool of_costs = statement->second.says == Says::Reading;
      // Two plans are compared as they are: there, flags of costs and policies are refused as well.
      const bool expected =
          statement->second.says == Says::Refused ||
          (name == "compare" && (of_costs || flag.name == "--fail-if" || flag.name == "--html"));
      // A page has to go somewhere.
      if (!expected || (name == "report" && flag.name == "--out")) continue;
      Draw values(1);
      std::string value = statement->second.value;
      if (of_costs) {
        const Command simulate = command_named("simulate");
        const std::string file = (folder_.path() / "plan.json").string();
        value = statement->second.change(facts_with(simulate, file, {}), values).value;
      }
      const std::string files = name == "compare"  ? " plan.json plan.json "
                                : name == "report" ? " plan.json -o report.html "
                                                   : " plan.json ";
      const auto result = test::pipewright(
          name + files + std::string(flag.name) + (value.empty() ? "" : " '" + value + "'"),
          folder_);
      EXPECT_EQ(result.status, 2) << name << " " << flag.name << "\n" << result.out << result.err;
      EXPECT_NE(result.err.find(flag.name), std::string::npos) << result.err;
    }
  }
}

TEST_F(FlagsOfPlans, FilesAndMembersThatAreAskedForChangeNoOther) {
  Draw draw(11);
  Plan plan = random_plan(draw);
  plan.policy = comm_policy_preset("torch");
  save(plan);
  for (const char* name : {"simulate", "check", "analyze"}) {
    const std::string words = std::string(name) + " plan.json --json ";
    const auto plain = test::pipewright(words, folder_);
    const Json before = parse_json(plain.out, name);
    for (const Flag& flag : command_named(name).flags) {
      const auto statement = statements().find(flag.name);
      if (statement == statements().end() || statement->second.says != Says::Members) continue;
      const auto result =
          test::pipewright(words + std::string(flag.name) + " " + statement->second.value, folder_);
      EXPECT_EQ(result.status, plain.status) << flag.name << result.err;
      Json after = parse_json(result.out, name), expected = before;
      for (const std::string& member : statement->second.members) {
        after.erase(member);
        expected.erase(member);
      }
      EXPECT_EQ(after, expected) << name << " " << flag.name;
    }
  }
}

/// What compare reads of its flags for a schedule of so many ranks.
Facts facts_of_compare(const std::vector<std::string>& flags) {
  const Command command = command_named("compare");
  std::vector<std::string> words = {"interleaved", "-p", "4", "-m", "8"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Arguments arguments = parse_arguments(command, words);
  Subject subject;
  const GivenCosts costs = given_costs(arguments, Placement::loop(4, 1), CostsOf::Ranks);
  subject.costs = costs.table;
  subject.memory_limit = costs.memory_limit;
  subject.program.policy = policy_from(arguments, comm_policy_preset("ideal"));
  return facts_of(subject);
}

TEST(FlagsOfSchedules, ChangeWhatTheyNameInTheAssumedCosts) {
  const std::vector<std::string> memory = {"--mem", "F=10,constant=7"};
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    Draw draw(seed);
    const Given costs = some_costs(facts_of_compare({}), draw);
    EXPECT_EQ(tests::difference(costs.expected, facts_of_compare({"--cost", costs.value})), "")
        << costs.value;
    const Given issue =
        policy_field<kIssue, kInline, kStream, kGrouped>(facts_of_compare(memory), draw);
    EXPECT_EQ(tests::difference(issue.expected,
                                facts_of_compare({memory[0], memory[1], "--issue", issue.value})),
              "");
  }
}

}  // namespace flags_test
}  // namespace pipewright::tools
