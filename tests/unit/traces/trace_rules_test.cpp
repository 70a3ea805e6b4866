// The checker of traces notices what it is there for: each case breaks one rule of a good trace.
#include "tests/support/trace_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pipewright::test {
namespace trace_rules_test {

const std::string kGood = R"({"traceEvents":[
{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"compute"}},
{"ph":"X","pid":1,"tid":1,"ts":0.000,"dur":2.000,"name":"a","cname":"good","args":{}},
{"ph":"X","pid":1,"tid":1,"ts":2.000,"dur":3.000,"name":"b","args":{}},
{"ph":"s","pid":1,"tid":1,"ts":1.999,"id":1,"cat":"t","name":"x"},
{"ph":"f","pid":1,"tid":1,"ts":2.001,"id":1,"cat":"t","name":"x","bp":"e"},
{"ph":"C","pid":1,"tid":1,"ts":0.000,"name":"n","args":{"live":1}}
],"displayTimeUnit":"ms"})";

TEST(TraceRules, TakesAGoodTrace) {
  const TraceFacts facts = trace_facts(kGood);
  EXPECT_THAT(facts.problems, ::testing::IsEmpty());
  EXPECT_EQ(facts.slices, 2);
  EXPECT_EQ(facts.arrows, 1);
  EXPECT_EQ(facts.counters, 1);
}

struct Broken {
  const char *from, *to, *problem;
};

TEST(TraceRules, NoticesEachBrokenRule) {
  const std::vector<Broken> cases = {
      {"\"ts\":2.000,\"dur\":3", "\"ts\":1.500,\"dur\":3", "overlap"},
      {"\"ts\":2.001", "\"ts\":5.000", "no slice around"},
      {"\"ts\":1.999", "\"ts\":2.000", "not inside"},
      {"\"dur\":2.000", "\"dur\":2.0004", "no whole nanosecond"},
      {"\"cname\":\"good\"", "\"cname\":\"blue\"", "colour"},
      {",\"bp\":\"e\"", "", "without bp"},
      {"\"id\":1,\"cat\":\"t\",\"name\":\"x\",\"bp\"",
       "\"id\":2,\"cat\":\"t\",\"name\":\"x\",\"bp\"", "one end"},
      {"\"name\":\"x\",\"bp\"", "\"name\":\"y\",\"bp\"", "two names"},
      {"\"id\":1", "\"id\":\"p2p\"", "id is no number"},
      {"\"pid\":1,\"tid\":1,\"ts\":0.000,\"dur\"", "\"pid\":1,\"tid\":0,\"ts\":0.000,\"dur\"",
       "number from 1"},
      {"thread_name", "thread_names", "unknown metadata"},
      {"\"live\":1", "", "counter without"},
      {"\"ms\"", "\"ns\"", "displayTimeUnit"},
      {"rank 0", "rank\t0", "control character"},
  };
  for (const Broken& broken : cases) {
    std::string text = kGood;
    const auto at = text.find(broken.from);
    ASSERT_NE(at, std::string::npos) << broken.from;
    text.replace(at, std::string(broken.from).size(), broken.to);
    std::string all;
    for (const std::string& problem : trace_facts(text).problems) all += problem + "\n";
    EXPECT_THAT(all, ::testing::HasSubstr(broken.problem)) << broken.from;
  }
}

}  // namespace trace_rules_test
}  // namespace pipewright::test
