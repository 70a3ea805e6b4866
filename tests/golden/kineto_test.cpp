// Real traces of PyTorch's pipelining runtime: what counts as work in them, on which clock, and
// what idle time is put down to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/json.hpp"
#include "core/costs/action_times.hpp"
#include "tests/golden/golden_orders.hpp"
#include "tests/support/command_runner.hpp"
#include "traces/analysis/slice_waits.hpp"
#include "traces/chrome/gzip.hpp"
#include "traces/chrome/join_ranks.hpp"
#include "traces/chrome/read_trace.hpp"

namespace pipewright {
namespace kineto_test {

namespace fs = std::filesystem;
using traces::TraceRank;
using traces::TraceSpan;
using traces::TraceTimeline;

struct Set {
  std::string name;
  std::vector<fs::path> files;  // by rank
};

std::vector<Set> sets() {
  std::vector<Set> found;
  for (const auto& folder : fs::directory_iterator(golden::golden_dir() / "kineto")) {
    if (!folder.is_directory()) continue;
    Set& set = found.emplace_back(Set{folder.path().filename(), {}});
    for (const auto& file : fs::directory_iterator(folder)) {
      if (file.path().string().ends_with(".json.gz")) set.files.push_back(file);
    }
    std::sort(set.files.begin(), set.files.end());
  }
  return found;
}

std::vector<TraceTimeline> read(const Set& set) {
  std::vector<TraceTimeline> files;
  for (const fs::path& file : set.files) files.push_back(traces::read_trace(file.string()));
  return files;
}

bool computes(const std::string& slice) {
  const auto cell = traces::cell_of_slice_name(slice);
  return cell && is_compute(cell->action.kind);
}

/// Straight from the file, in microseconds: how long the slices of computations are, for how long
/// an operator is at work inside them, and for how long none is up to the end of a receive,
/// whatever it is for.
struct Seen {
  double slices = 0, operators = 0, waiting = 0;
};

Seen seen_in(const fs::path& file) {
  const Json document = parse_json(traces::gunzip(golden::text_of(file), file, 1ULL << 30), file);
  std::vector<std::pair<double, double>> slices, operators;
  std::vector<double> received;
  for (const Json& event : document.at("traceEvents")) {
    if (event.value("ph", "") != "X") continue;
    const double from = event.at("ts"), to = from + event.at("dur").get<double>();
    const std::string name = event.at("name");
    if (computes(name)) slices.emplace_back(from, to);
    if (name == "gloo:recv") received.push_back(to);
    if (event.value("cat", "") == "cpu_op" && !name.starts_with("c10d::")) {
      operators.emplace_back(from, to);
    }
  }
  std::sort(operators.begin(), operators.end());
  Seen seen;
  for (const auto& [from, to] : slices) {
    seen.slices += to - from;
    double covered = from;
    const auto wait_until = [&](double next) {
      double waited = covered;
      for (const double moment : received) {
        if (moment <= next) waited = std::max(waited, moment);
      }
      seen.waiting += waited - covered;
    };
    for (const auto& [begin, end] : operators) {
      if (begin >= to || end <= covered) continue;
      if (begin > covered) wait_until(begin);
      seen.operators += std::min(end, to) - std::max(begin, covered);
      covered = std::min(end, to);
    }
    wait_until(to);
  }
  return seen;
}

/// Of all rows of "replica,rank,action,ns".
double sum_of_costs(const std::string& csv) {
  double sum = 0;
  for (const ActionTime& row : read_action_times_csv(csv, "costs.csv"))
    sum += static_cast<double>(row.time.value);
  return sum;
}

double busy_of(const Json& trace) {
  double busy = 0;
  for (const Json& rank : trace.at("ranks")) busy += rank.at("busy_ns").get<double>();
  return busy;
}

double computing_us(const TraceRank& rank) {
  double sum = 0;
  for (const TraceSpan& span : rank.spans) {
    if (is_compute(span.cell.action.kind)) sum += static_cast<double>(span.duration_ns()) / 1000;
  }
  return sum;
}

/// Between operators the host still works (autograd, Python) or is away from its core: that is no
/// waiting for an input.
TEST(Kineto, WhatCountsAsWorkHasTheOperatorsAndNoWaitingForAReceive) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden::golden_dir() / "kineto");
  double slices = 0, work = 0;  // of all files
  for (const Set& set : sets()) {
    for (const fs::path& file : set.files) {
      SCOPED_TRACE(file);
      const TraceTimeline trace = traces::read_trace(file.string());
      const Seen seen = seen_in(file);
      const double computing = computing_us(trace.ranks.at(0));
      EXPECT_EQ(trace.ranks[0].wait_rule, traces::WaitRule::Receives);
      EXPECT_GE(computing, 0.999 * seen.operators);
      EXPECT_NEAR(computing, seen.slices - seen.waiting, 0.002 * seen.slices);
      slices += seen.slices;
      work += computing;
    }
  }
  EXPECT_LT(work, 0.75 * slices);  // a quarter of the slices was waiting
}

/// How a rank's clock was set wrong.
struct Fault {
  std::int64_t ahead_ns = 0;
  double drift = 0;
};

/// All ranks were processes of one machine, so their clocks are one. Whichever is set wrong, it
/// comes back to within 1 ms, the truth inside the bounds.
TEST(Kineto, AWrongClockIsSetRightByTheMessages) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden::golden_dir() / "kineto");
  constexpr std::int64_t kMs = 1'000'000;
  for (const Set& set : sets()) {
    SCOPED_TRACE(set.name);
    const std::vector<TraceTimeline> files = read(set);
    EXPECT_TRUE(traces::join_ranks(files).clocks.agreed);
    for (const Fault& fault : {Fault{11'000 * kMs, 0}, Fault{-3 * kMs, 0}, Fault{0, 50e-6},
                               Fault{3'600'000 * kMs, 50e-6}, Fault{-700 * kMs, 0}}) {
      for (std::size_t wrong = 0; wrong < files.size(); ++wrong) {
        std::vector<TraceTimeline> changed = files;
        changed[wrong].clock_ns += fault.ahead_ns;
        traces::retime(changed[wrong].ranks.at(0), [&](std::int64_t time) {
          return time + std::llround(fault.drift * static_cast<double>(time));
        });
        const traces::JoinedTrace joined = traces::join_ranks(std::move(changed));
        EXPECT_EQ(joined.clocks.agreed, fault.ahead_ns == 0);
        EXPECT_EQ(joined.clocks.acausal_after, 0U);
        for (std::size_t r = 1; r < joined.clocks.shifts.size(); ++r) {
          const traces::ClockShift& clock = joined.clocks.shifts[r];
          const std::int64_t truth =
              (wrong == 0 ? fault.ahead_ns : 0) - (wrong == r ? fault.ahead_ns : 0);
          ASSERT_TRUE(clock.bounded);
          EXPECT_LE(clock.least_ns, truth);
          EXPECT_GE(clock.most_ns, truth);
          EXPECT_LE(std::abs(clock.shift_ns - truth), kMs)
              << "rank " << r << ", wrong " << wrong << " by " << fault.ahead_ns;
        }
      }
    }
  }
}

std::string without_blanks(const std::string& csv) {
  std::string result;
  for (const char c : csv) {
    if (c == ',' && (result.empty() || result.back() == ',' || result.back() == '\n')) continue;
    if (c == '\n' && !result.empty() && result.back() == ',') result.pop_back();
    result += c;
  }
  return result;
}

/// The files in another order than that of the ranks; the recovered order with the costs that the
/// trace shows is simulated as a user would.
TEST(Kineto, TheOrderComesBackExactlyAndItsSimulationTakesWhatTheTraceTook) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden::golden_dir() / "kineto");
  for (const Set& set : sets()) {
    SCOPED_TRACE(set.name);
    const test::Folder folder;
    std::string files;
    for (auto file = set.files.rbegin(); file != set.files.rend(); ++file)
      files += " " + file->string();
    const auto read =
        test::pipewright("analyze" + files + " --json -o order.csv --costs-out costs.csv", folder);
    ASSERT_EQ(read.status, 0) << read.err;
    const Json trace = parse_json(read.out, "analyze");
    EXPECT_EQ(golden::text_of(folder.path() / "order.csv"),
              without_blanks(golden::text_of(set.files.front().parent_path() / "order.csv")));
    const auto run =
        test::pipewright("simulate order.csv --json --costs costs.csv --cost comm=" +
                             std::to_string(trace.at("costs").at("latency_ns").get<std::int64_t>()),
                         folder);
    ASSERT_EQ(run.status, 0) << run.err;
    const double simulated = parse_json(run.out, "simulate").at("makespan_ns");
    const double traced = trace.at("makespan_ns");
    EXPECT_NEAR(simulated, traced, 0.01 * traced);
    EXPECT_EQ(simulated, trace.at("costs").at("replayed_step_ns").get<double>());
    // Besides work they hold what the host and slow transfers added, and no waiting for others.
    const double costs = sum_of_costs(golden::text_of(folder.path() / "costs.csv"));
    const double busy = busy_of(trace);
    double added = 0;
    for (const char* cause : {"waiting_for_a_transfer_ns", "overhead_ns", "fill_ns"})
      added += trace.at("bubbles").at(cause).get<double>();
    EXPECT_GE(costs, 0.99 * busy);
    EXPECT_LE(costs, busy + added);
  }
}

TEST(Kineto, NoComputationBeginsBeforeWhatFeedsItHasEnded) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden::golden_dir() / "kineto");
  int messages = 0;
  for (const Set& set : sets()) {
    SCOPED_TRACE(set.name);
    const TraceTimeline trace = traces::join_ranks(read(set)).trace;
    std::map<std::string, std::int64_t> ended;
    for (const TraceRank& rank : trace.ranks) {
      for (const TraceSpan& span : rank.spans) ended[to_string(span.cell)] = span.end_ns;
    }
    for (const TraceRank& rank : trace.ranks) {
      for (const TraceSpan& span : rank.spans) {
        const Action& a = span.cell.action;
        if (a.kind != ActionKind::F || span.cell.partner) continue;
        const auto fed = ended.find(std::to_string(a.stage.value - 1) + "F" +
                                    std::to_string(a.micro_batch.value));
        if (fed == ended.end()) continue;
        EXPECT_GE(span.start_ns, fed->second) << to_string(span.cell);
        ++messages;
      }
    }
  }
  EXPECT_GT(messages, 30);
}

TEST(Kineto, AnalyzeTakesAFolderOfRanksAndSaysWhatItDid) {
  PIPEWRIGHT_NEEDS_GOLDEN(golden::golden_dir() / "kineto");
  const test::Folder folder;
  const std::string set = (golden::golden_dir() / "kineto" / "1f1b_p2_m4").string();
  const auto all = test::pipewright("analyze " + set + " --json", folder);
  ASSERT_EQ(all.status, 0) << all.err;
  const Json document = parse_json(all.out, "analyze");
  ASSERT_EQ(document.at("ranks").size(), 2U);
  EXPECT_EQ(document.at("clocks").size(), 2U);
  double idle = 0, overhead = 0, busy = 0;
  for (const Json& rank : document.at("ranks")) {
    EXPECT_EQ(rank.at("waiting_rule"), "receives");
    EXPECT_GT(rank.at("waited_ns").get<double>(), 1e6);
    busy += rank.at("busy_ns").get<double>();
  }
  for (const auto& [cause, ns] : document.at("bubbles").items()) {
    idle += ns.get<double>();
    if (cause == "overhead_ns") overhead = ns.get<double>();
  }
  EXPECT_LT(overhead, 0.1 * idle);
  EXPECT_EQ(busy + idle, 2 * document.at("makespan_ns").get<double>());
  EXPECT_EQ(document.at("messages").at("matched"), 8);
  EXPECT_GT(document.at("bubble_ratio").get<double>(), 0.2);
  const auto one = test::pipewright("analyze " + set + "/rank1.json.gz", folder);
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_NE(one.out.find("slices counts as idle: up to the end of the receives"), one.out.npos)
      << one.out;
  EXPECT_NE(one.out.find("1 of 2 ranks"), one.out.npos) << one.out;
  const auto half = test::pipewright("analyze " + set + "/rank1.json.gz -o o.csv", folder);
  EXPECT_EQ(half.status, 2);
  EXPECT_NE(half.err.find("needs the traces of all ranks"), half.err.npos) << half.err;
}

}  // namespace kineto_test
}  // namespace pipewright
