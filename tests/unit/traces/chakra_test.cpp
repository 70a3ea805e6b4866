// Chakra's execution traces, made by hand in the form of its schema.
#include "traces/events/chakra.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/base/error.hpp"
#include "tests/support/expect_refusal.hpp"
#include "traces/chrome/gzip.hpp"
#include "traces/chrome/join_ranks.hpp"
#include "traces/chrome/read_trace.hpp"

namespace pipewright::traces {
namespace chakra_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7f));
  return bytes + static_cast<char>(value);
}
std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
std::string text(int field, const std::string& value) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(value.size()) + value;
}
std::string framed(const std::string& message) { return varint(message.size()) + message; }
/// An attribute, whose value is already a field.
std::string attribute(const std::string& name, const std::string& value) {
  return text(10, text(1, name) + value);
}

enum Type { kMetadata = 1, kComp = 4, kSend = 5, kReceive = 6, kCollective = 7 };

struct Times {
  std::uint64_t start_us = 0, duration_us = 0;
};

std::string node(std::uint64_t id, const std::string& name, Type type, Times times,
                 const std::vector<std::uint64_t>& needs, const std::string& more = "") {
  std::string bytes = number(1, id) + text(2, name) + number(3, type);
  for (const std::uint64_t need : needs) bytes += number(5, need);
  if (times.start_us > 0) bytes += number(6, times.start_us);
  if (times.duration_us > 0) bytes += number(7, times.duration_us);
  return framed(bytes + more);
}

/// comm_src or comm_dst, and comm_tag: as int32_val here, which old readers take.
std::string peer(const std::string& name, std::uint64_t rank, std::uint64_t tag) {
  return attribute(name, number(7, rank)) + attribute("comm_tag", number(7, tag));
}

/// A rank's file, written node by node; ids count from 0.
struct RankFile {
  std::string bytes = framed(text(1, "0.0.4"));
  std::uint64_t next = 0;
  std::uint64_t last = 0;  // computation

  std::uint64_t add(const std::string& name, Type type, Times times,
                    const std::vector<std::uint64_t>& needs, const std::string& more = "") {
    bytes += node(next, name, type, times, needs, more);
    return next++;
  }
  /// After the computation before, and what else it needs.
  void compute(const std::string& name, std::uint64_t us, std::vector<std::uint64_t> needs = {}) {
    if (next > 0 && last < next && has_computed) needs.push_back(last);
    last = add(name, kComp, {0, us}, needs);
    has_computed = true;
  }
  std::uint64_t receive(std::uint64_t from, std::uint64_t tag) {
    return add("RECV", kReceive, {}, {}, peer("comm_src", from, tag));
  }
  void send(std::uint64_t to, std::uint64_t tag) {
    add("SEND", kSend, {}, {last}, peer("comm_dst", to, tag));
  }
  bool has_computed = false;
};

std::vector<JoinedTrace> read(const std::vector<std::string>& files) {
  std::vector<ChakraTrace> ranks;
  for (std::size_t r = 0; r < files.size(); ++r)
    ranks.push_back(
        parse_chakra(files[r], "job." + std::to_string(r) + ".et", static_cast<int>(r)));
  return join_steps(chakra_steps(ranks));
}

/// "0F0 0-10" of each computation of a rank, in microseconds.
std::vector<std::string> computed(const TraceTimeline& trace, std::size_t rank) {
  std::vector<std::string> texts;
  for (const TraceSpan& span : trace.ranks.at(rank).spans) {
    if (span.kind != SpanKind::Compute) continue;
    texts.push_back(to_string(span.cell) + " " + std::to_string(span.start_ns / 1000) + "-" +
                    std::to_string(span.end_ns / 1000));
  }
  return texts;
}

/// 1F1B of two ranks and three micro-batches; F takes 10 us, B 20. `name` names a computation.
std::vector<std::string> one_forward_one_backward(
    const std::function<std::string(int, char, int)>& name) {
  RankFile first, last;
  const auto forward = [&](int m) {
    first.compute(name(0, 'F', m), 10);
    first.send(1, static_cast<std::uint64_t>(m));
  };
  const auto backward = [&](int m) {
    const auto gradient = first.receive(1, static_cast<std::uint64_t>(m));
    first.compute(name(0, 'B', m), 20, {gradient});
  };
  forward(0), forward(1), backward(0), forward(2), backward(1), backward(2);
  for (int m = 0; m < 3; ++m) {
    const auto input = last.receive(0, static_cast<std::uint64_t>(m));
    last.compute(name(1, 'F', m), 10, {input});
    last.compute(name(1, 'B', m), 20);
    last.send(0, static_cast<std::uint64_t>(m));
  }
  return {first.bytes, last.bytes};
}

TEST(Chakra, WithoutTimesDependenciesAndDurationsGiveThem) {
  const auto steps = read(one_forward_one_backward([](int, char, int) { return "COMP_NODE"; }));
  ASSERT_EQ(steps.size(), 1U);
  const TraceTimeline& trace = steps[0].trace;
  EXPECT_THAT(computed(trace, 0), ElementsAre("0F0 0-10", "0F1 10-20", "0B0 40-60", "0F2 60-70",
                                              "0B1 70-90", "0B2 100-120"));
  EXPECT_THAT(computed(trace, 1), ElementsAre("1F0 10-20", "1B0 20-40", "1F1 40-50", "1B1 50-70",
                                              "1F2 70-80", "1B2 80-100"));
  EXPECT_EQ(trace.makespan_ns, 120'000);
  EXPECT_THAT(trace.metadata.at("times"), HasSubstr("messages take no time"));
}

TEST(Chakra, NamesOfActionsAreTakenAtTheirWord) {
  // They number the micro-batches from the last.
  const auto steps = read(one_forward_one_backward([](int stage, char kind, int m) {
    return "PP:" + std::to_string(stage) + kind + std::to_string(2 - m);
  }));
  EXPECT_THAT(computed(steps[0].trace, 0), ElementsAre("0F2 0-10", "0F1 10-20", "0B2 40-60",
                                                       "0F0 60-70", "0B1 70-90", "0B0 100-120"));
}

TEST(Chakra, WordsForForwardAndBackwardDivideWhatHasSeveralNodes) {
  RankFile first, last;
  for (std::uint64_t m = 0; m < 2; ++m) {
    first.compute("layer0_fwd", 4);
    const auto sum = first.add("ALL_REDUCE", kCollective, {0, 3}, {first.last});
    first.compute("layer1_fwd", 3, {sum});
    first.send(1, m);
    const auto input = last.receive(0, m);
    last.compute("layer2_fwd", 5, {input});
    last.compute("layer2_bwd", 6);
    last.compute("loss", 1);
    last.send(0, m);
    const auto gradient = first.receive(1, m);
    first.compute("layer1_BWD_IG", 7, {gradient});
    first.compute("layer0_BWD_WG", 8);
  }
  first.compute("optimizer", 2);
  const auto steps = read({first.bytes, last.bytes});
  const TraceTimeline& trace = steps[0].trace;
  EXPECT_THAT(computed(trace, 0),
              ElementsAre("0F0 0-10", "0B0 22-37", "0F1 37-47", "0B1 59-74", "OPT 74-76"));
  EXPECT_THAT(computed(trace, 1), ElementsAre("1F0 10-15", "1B0 15-22", "1F1 47-52", "1B1 52-59"));
}

TEST(Chakra, BackwardsInReverseAreMatchedByWhatTheyNeed) {
  RankFile first, last;
  for (std::uint64_t m = 0; m < 2; ++m) {
    first.compute("a", 10);
    first.send(1, m);
  }
  std::vector<std::uint64_t> forwards;
  for (std::uint64_t m = 0; m < 2; ++m) {
    const auto input = last.receive(0, m);
    last.compute("a", 10, {input});
    forwards.push_back(last.last);
  }
  for (std::uint64_t m = 2; m-- > 0;) {
    last.compute("a", 20, {forwards[m]});
    last.send(0, 10 + m);
    const auto gradient = first.receive(1, 10 + m);
    first.compute("a", 20, {gradient});
  }
  const auto steps = read({first.bytes, last.bytes});
  EXPECT_THAT(computed(steps[0].trace, 0),
              ElementsAre("0F0 0-10", "0F1 10-20", "0B1 50-70", "0B0 70-90"));
}

TEST(Chakra, ChunksGoAroundTheRanksAndStepsEndWithTheUpdate) {
  // Two ranks with two stages each, one micro-batch, twice: 0 -> 1 -> 0 -> 1, and back.
  RankFile ranks[2];
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (std::uint64_t at = 0; at < 8; ++at) {
      RankFile& here = ranks[at < 4 ? at % 2 : (at + 1) % 2];
      RankFile& before = ranks[at == 4 ? 1 : at < 4 ? (at + 1) % 2 : at % 2];
      std::vector<std::uint64_t> input;
      if (at > 0 && at != 4) {
        before.send(&here == &ranks[0] ? 0 : 1, 10 * step + at);
        input = {here.receive(&before == &ranks[0] ? 0 : 1, 10 * step + at)};
      }
      here.compute("x", 10, input);
    }
    for (RankFile& rank : ranks) rank.compute("update", 5);
  }
  const auto steps = read({ranks[0].bytes, ranks[1].bytes});
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_THAT(computed(steps[0].trace, 0),
              ElementsAre("0F0 0-10", "2F0 20-30", "2B0 50-60", "0B0 70-80", "OPT 80-85"));
  // Rank 1 has updated its weights 10 us earlier, and waits.
  EXPECT_THAT(computed(steps[1].trace, 0),
              ElementsAre("0F0 10-20", "2F0 30-40", "2B0 60-70", "0B0 80-90", "OPT 90-95"));
}

TEST(Chakra, TimesOfTheFileAreTakenAndMessagesWithThem) {
  RankFile first, last;
  first.add("PP:0F0", kComp, {1000, 100}, {});
  first.add("send", kSend, {1105, 20}, {0}, peer("comm_dst", 1, 0));
  first.add("recv", kReceive, {1110, 300}, {0}, peer("comm_src", 1, 0));
  first.add("PP:0B0", kComp, {1410, 50}, {0, 2});
  last.add("recv", kReceive, {1090, 60}, {}, peer("comm_src", 0, 0));
  last.add("PP:1F0", kComp, {1150, 90}, {0});
  last.add("PP:1B0", kComp, {1240, 110}, {1});
  last.add("send", kSend, {1350, 55}, {2}, peer("comm_dst", 0, 0));
  const auto steps = read({first.bytes, last.bytes});
  const TraceTimeline& trace = steps[0].trace;
  EXPECT_THAT(computed(trace, 0), ElementsAre("0F0 0-100", "0B0 410-460"));
  EXPECT_THAT(computed(trace, 1), ElementsAre("1F0 150-240", "1B0 240-350"));
  std::vector<std::string> messages;
  for (const TraceRank& rank : trace.ranks) {
    EXPECT_EQ(rank.wait_rule, WaitRule::Producers);
    for (const TraceSpan& span : rank.spans)
      if (span.kind == SpanKind::Transfer)
        messages.push_back(to_string(span.cell) + " until " + std::to_string(span.end_ns / 1000));
  }
  EXPECT_THAT(messages, ElementsAre("0SEND_F0 until 125", "0RECV_B0 until 410",
                                    "1RECV_F0 until 150", "1SEND_B0 until 405"));
  EXPECT_EQ(trace.metadata.count("times"), 0U);
}

TEST(Chakra, KernelsBelowACallerGiveItsTime) {
  // As Chakra's converter writes PyTorch's traces: the caller is a control dependency.
  const auto called_by = [](std::uint64_t caller) { return number(4, caller); };
  const auto host = attribute("is_cpu_op", number(27, 1));
  RankFile rank;
  rank.add("PP:0F0", kComp, {100, 50}, {}, host);
  rank.add("aten::mm", kComp, {105, 10}, {}, host + called_by(0));
  rank.add("gemm", kComp, {300, 40}, {}, called_by(1));
  rank.add("add", kComp, {350, 30}, {}, called_by(1));
  rank.add("other", kComp, {390, 30}, {}, called_by(99));  // left out by the converter
  rank.add("unseen", kComp, {}, {}, called_by(0));
  rank.add("PP:0B0", kComp, {160, 50}, {}, host);
  rank.add("gemm", kComp, {400, 40}, {}, called_by(6));
  const auto steps = read({rank.bytes});
  EXPECT_THAT(computed(steps[0].trace, 0), ElementsAre("0F0 0-80", "0B0 100-140"));
}

TEST(Chakra, ASendEndsWithItsCallWhateverTheBackEndShowsBelowIt) {
  const auto called_by = [](std::uint64_t caller) {
    return number(4, caller) + attribute("is_cpu_op", number(27, 1));
  };
  RankFile first, last;
  first.add("PP:0F0", kComp, {100, 50}, {});
  first.add("PP:0SEND_F0", kComp, {150, 10}, {});
  first.add("c10d::send", kComp, {152, 5}, {}, called_by(1));
  first.add("gloo:send", kComp, {154, 400}, {}, called_by(2));
  last.add("PP:1RECV_F0", kComp, {100, 10}, {});
  last.add("gloo:recv", kComp, {105, 60}, {}, called_by(0));
  last.add("PP:1F0", kComp, {165, 35}, {});
  const auto steps = read({first.bytes, last.bytes});
  EXPECT_EQ(steps[0].trace.makespan_ns, 100'000);
}

TEST(Chakra, AttributesAreReadWhateverTypeTheirWriterTook) {
  const auto fixed = [](int field, std::uint64_t value, int size) {
    std::string bytes = varint(static_cast<std::uint64_t>(field) << 3 | (size == 8 ? 1 : 5));
    for (int k = 0; k < size; ++k) bytes += static_cast<char>(value >> (8 * k));
    return bytes;
  };
  std::uint64_t id = 0;
  std::string file = framed("");
  for (const std::string& value :
       {number(7, 3), number(9, 3), number(11, 3), number(13, 3), number(15, 6), number(17, 6),
        fixed(19, 3, 4), fixed(21, 3, 8), fixed(23, 3, 4), fixed(25, 3, 8)}) {
    file += node(id++, "send", kSend, {}, {}, attribute("comm_dst", value));
  }
  const ChakraTrace trace = parse_chakra(file, "job.0.et", 0);
  ASSERT_EQ(trace.nodes.size(), 10U);
  for (const ChakraNode& each : trace.nodes) EXPECT_EQ(each.target, 3);
}

TEST(Chakra, FilesOfRanksInAnyOrderGzipOrNot) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / ("chakra" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto files = one_forward_one_backward([](int, char, int) { return ""; });
  const std::string first = (folder / "job.0.et.gz").string(),
                    last = (folder / "job.1.et").string();
  std::ofstream(first, std::ios::binary) << gzip(files[0]);
  std::ofstream(last, std::ios::binary) << files[1];
  const auto joined = join_steps(read_chakra_steps({last, first}));
  EXPECT_EQ(joined.at(0).trace.makespan_ns, 120'000);
  EXPECT_THAT(computed(joined.at(0).trace, 0), testing::Contains("0F2 60-70"));
  const InputError twice = test::refusal([&] { (void)read_chakra_steps({first, first}); });
  EXPECT_THAT(twice.message(), HasSubstr("give one file of each rank"));
  fs::remove_all(folder);
}

TEST(Chakra, NamesOfFiles) {
  EXPECT_TRUE(is_chakra_file("a/job.3.et"));
  EXPECT_TRUE(is_chakra_file("job.et.gz"));
  EXPECT_FALSE(is_chakra_file("job.json"));
  EXPECT_FALSE(is_chakra_file(".et"));
  EXPECT_EQ(rank_of_chakra_file("a.1/job.13.et.gz"), 13);
  EXPECT_EQ(rank_of_chakra_file("a.1/job.et"), std::nullopt);
  EXPECT_EQ(rank_of_chakra_file("job.-3.et"), std::nullopt);
}

TEST(Chakra, WhatIsNoneIsRefusedInOneSentence) {
  const std::string metadata = framed(text(1, "0.0.4"));
  const auto refused = [](const std::vector<std::string>& files) {
    const InputError error = test::refusal([&] { (void)read(files); });
    test::expect_one_line(error);
    EXPECT_THAT(error.file(), HasSubstr(".et"));
    return std::string(error.what());
  };
  const std::string one = node(0, "PP:0F0", kComp, {0, 5}, {});
  EXPECT_THAT(refused({""}), HasSubstr("is empty"));
  EXPECT_THAT(refused({metadata}), HasSubstr("holds no computation"));
  EXPECT_THAT(refused({metadata + one.substr(0, one.size() - 1)}),
              HasSubstr("is it a Chakra execution trace?"));
  EXPECT_THAT(refused({R"({"traceEvents": []})"}), HasSubstr("is it a Chakra execution trace?"));
  EXPECT_THAT(refused({metadata + one + one}), HasSubstr("node 0: is there twice"));
  EXPECT_THAT(refused({metadata + node(1, "PP:0F0", kComp, {0, 5}, {7})}),
              HasSubstr("needs data of node 7"));
  EXPECT_THAT(refused({metadata + node(1, "PP:0F0", kComp, {0, ~std::uint64_t{0}}, {})}),
              HasSubstr("at most 36 years"));
  EXPECT_THAT(refused({metadata + node(1, "PP:0F0", kComp, {}, {})}), HasSubstr("num_ops"));
  EXPECT_THAT(refused({metadata + node(1, "PP:0F0", kComp, {0, 5}, {2}) +
                       node(2, "PP:0F1", kComp, {0, 5}, {1})}),
              HasSubstr("can never begin"));
  EXPECT_THAT(refused({metadata + node(0, "a", kReceive, {}, {}, peer("comm_src", 1, 0)) +
                       node(1, "b", kComp, {0, 5}, {0})}),
              HasSubstr("no rank sends"));
  EXPECT_THAT(refused({metadata + node(0, "PP:0F0", kComp, {9, 5}, {}), metadata + one}),
              HasSubstr("give files of one kind"));
  EXPECT_THAT(refused({metadata + one, metadata + node(0, "x", kComp, {0, 5}, {})}),
              HasSubstr("holds no action of a pipeline, as other ranks' files do"));
}

TEST(Chakra, WhatIsNoPipelineIsRefusedInOneSentence) {
  const auto refused = [](const std::vector<std::string>& files) {
    const InputError error = test::refusal([&] { (void)read(files); });
    test::expect_one_line(error);
    EXPECT_THAT(error.message(), HasSubstr("nodes named after actions"));
    return std::string(error.what());
  };
  RankFile alone;
  alone.compute("a", 5);
  EXPECT_THAT(refused({alone.bytes}), HasSubstr("neither begins nor goes on"));
  // Rank 1 computes forward and backward in one node.
  RankFile first, last;
  first.compute("a", 5);
  first.send(1, 0);
  last.compute("a", 5, {last.receive(0, 0)});
  last.send(0, 1);
  first.compute("a", 5, {first.receive(1, 1)});
  EXPECT_THAT(refused({first.bytes, last.bytes}),
              HasSubstr("forward and backward of a micro-batch in one"));
  // A V: what rank 1 computes first goes on there, and so does what comes back to rank 0.
  RankFile outer, inner;
  outer.compute("a_fwd", 5);
  outer.send(1, 0);
  inner.compute("b_fwd", 5, {inner.receive(0, 0)});
  inner.compute("c_fwd", 5);
  inner.send(0, 1);
  outer.compute("d_fwd", 5, {outer.receive(1, 1)});
  outer.compute("d_bwd", 5);
  outer.send(1, 2);
  inner.compute("c_bwd", 5, {inner.receive(0, 2)});
  inner.compute("b_bwd", 5);
  inner.send(0, 3);
  outer.compute("a_bwd", 5, {outer.receive(1, 3)});
  EXPECT_THAT(refused({outer.bytes, inner.bytes}), HasSubstr("to the same rank"));
  // One message, two takers.
  RankFile from, left, right;
  from.compute("a", 5);
  from.send(1, 0);
  from.send(2, 0);
  left.compute("a", 5, {left.receive(0, 0)});
  right.compute("a", 5, {right.receive(0, 0)});
  EXPECT_THAT(refused({from.bytes, left.bytes, right.bytes}), HasSubstr("to several"));
}

}  // namespace chakra_test
}  // namespace pipewright::traces
