// Exports of Nsight Systems, made by hand in the form that NVIDIA documents.
#include "traces/events/nsight.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/expect_refusal.hpp"
#include "traces/chrome/read_trace.hpp"

namespace pipewright::traces {
namespace nsight_test {

using ::testing::HasSubstr;

constexpr const char* kTables = R"sql(
  CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
    rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
    endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL);
  CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL);
  CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
  INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');
  INSERT INTO StringIds VALUES (1, 'PP:0F0'), (2, 'gemm'), (3, 'PP:1F0'), (4, 'forward_step'),
    (5, 'ncclDevKernel_SendRecv');
)sql";

/// Thread 7 of a process, as the schema packs it.
std::string thread_of(std::int64_t process) {
  return std::to_string((std::int64_t{1} << 56) + (process << 24) + 7);
}
std::string process_of(std::int64_t process) {
  return std::to_string((std::int64_t{1} << 56) + (process << 24));
}

std::string range(std::int64_t process, int start, int end, const std::string& text,
                  const std::string& text_id) {
  return "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid) VALUES (" +
         std::to_string(start) + ", " + (end < 0 ? "NULL" : std::to_string(end)) + ", 59, " + text +
         ", " + text_id + ", " + thread_of(process) + ");";
}

/// A call, and the kernel that it launches.
std::string kernel(std::int64_t process, int call, int launched, int start, int end, int name = 2) {
  return "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (" + std::to_string(launched) + ", " +
         std::to_string(launched + 5) + ", 0, " + thread_of(process) + ", " + std::to_string(call) +
         ", 2, 0);" + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (" + std::to_string(start) +
         ", " + std::to_string(end) + ", 0, 1, 7, " + std::to_string(call) + ", " +
         process_of(process) + ", " + std::to_string(name) + ", " + std::to_string(name) + ");";
}

std::string file_of_this_test() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return ::testing::TempDir() + "nsight-" + test->name() + std::to_string(getpid()) + ".sqlite";
}

/// A file that holds what the statements make.
void write_database(const std::string& path, const std::string& statements) {
  std::filesystem::remove(path);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  char* why = nullptr;
  EXPECT_EQ(sqlite3_exec(database, statements.c_str(), nullptr, nullptr, &why), SQLITE_OK) << why;
  sqlite3_close(database);
}

std::string bytes_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(Nsight, TwoProcessesAreRanksWhoseKernelsGiveTheTimes) {
  const std::string path = file_of_this_test();
  // Both processes count their calls from 1; another range, and one that never ended, say nothing.
  write_database(
      path, std::string(kTables) + range(4711, 1000, 1100, "NULL", "1") +
                range(4711, 1200, 1300, "'PP:0B0'", "NULL") + range(4711, 900, 1400, "NULL", "4") +
                range(4711, 1350, -1, "NULL", "1") + kernel(4711, 1, 1010, 1500, 1900) +
                kernel(4711, 2, 1210, 4000, 4800) + range(4712, 1050, 1150, "NULL", "3") +
                range(4712, 1160, 1260, "'PP:1B0'", "NULL") + kernel(4712, 1, 1060, 2000, 2500) +
                kernel(4712, 2, 1170, 2600, 3700));
  for (const auto& steps : {read_trace_steps(path), parse_trace_steps(bytes_of(path), path)}) {
    ASSERT_EQ(steps.size(), 1U);
    const TraceTimeline& trace = steps.front();
    ASSERT_EQ(trace.ranks.size(), 2U);
    ASSERT_EQ(trace.ranks[0].spans.size(), 2U);
    // Time 0 is the start of the first action.
    EXPECT_EQ(to_string(trace.ranks[0].spans[0].cell), "0F0");
    EXPECT_EQ(trace.ranks[0].spans[0].start_ns, 0);
    EXPECT_EQ(trace.ranks[0].spans[0].end_ns, 400);
    EXPECT_EQ(trace.ranks[0].spans[1].start_ns, 2500);
    EXPECT_EQ(to_string(trace.ranks[1].spans[0].cell), "1F0");
    EXPECT_EQ(trace.ranks[1].spans[0].start_ns, 500);
    EXPECT_EQ(trace.ranks[1].spans[1].end_ns, 2200);
    EXPECT_EQ(trace.makespan_ns, 3300);
    EXPECT_EQ(trace.clock_ns, 1'700'000'000'000'000'000 + 1500);
  }
  std::filesystem::remove(path);
}

/// Of a thread of process 4711.
std::string own_range(int thread, int start, int end, const std::string& text) {
  return "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (" +
         std::to_string(start) + ", " + std::to_string(end) + ", 59, '" + text + "', " +
         std::to_string((std::int64_t{1} << 56) + (std::int64_t{4711} << 24) + thread) + ");";
}

/// A call of a thread, and what it starts, in a table like that of kernels or of copies.
std::string own_work(const std::string& table, int thread, int call, int launched, int start,
                     int end) {
  const std::string process = process_of(4711);
  return "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (" + std::to_string(launched) + ", " +
         std::to_string(launched + 5) + ", 0, " +
         std::to_string((std::int64_t{1} << 56) + (std::int64_t{4711} << 24) + thread) + ", " +
         std::to_string(call) + ", 2, 0);" + "INSERT INTO " + table +
         " (start, end, correlationId, globalPid" +
         (table == "COPIES" ? std::string()
                            : ", deviceId, contextId, streamId, demangledName, shortName") +
         ") VALUES (" + std::to_string(start) + ", " + std::to_string(end) + ", " +
         std::to_string(call) + ", " + process + (table == "COPIES" ? "" : ", 0, 1, 7, 2, 2") +
         ");";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

TEST(Nsight, OurOwnRanksAreThreadsOfOneProcess) {
  const std::string path = file_of_this_test();
  const std::string kernels = "CUPTI_ACTIVITY_KIND_KERNEL";
  std::string statements = std::string(kTables) +
                           "CREATE TABLE COPIES (start INTEGER NOT NULL, end INTEGER NOT NULL, "
                           "correlationId INTEGER, globalPid INTEGER, bytes INTEGER);";
  // Two steps of two ranks, both of which launch at the same times.
  int call = 0;
  for (const int step : {7, 8}) {
    const int t = 10'000 * (step - 6);
    const std::string name = " step " + std::to_string(step);
    statements += own_range(21, t, t + 9000, "rank 0" + name);
    statements += own_range(22, t + 1, t + 9000, "rank 1" + name);
    statements += own_range(21, t + 100, t + 200, "0F0");
    statements += own_work(kernels, 21, ++call, t + 110, t + 1000, t + 2000);
    statements += own_range(21, t + 210, t + 220, "0SEND_F0");
    statements += own_range(22, t + 100, t + 150, "1RECV_F0");
    statements += own_work("COPIES", 22, ++call, t + 110, t + 2000, t + 2500);
    statements += own_range(22, t + 160, t + 200, "1F0");
    statements += own_work(kernels, 22, ++call, t + 170, t + 2500, t + 4000);
    // What a library's own thread launches belongs to no rank here.
    statements += own_work(kernels, 23, ++call, t + 170, t + 100, t + 8000);
  }
  write_database(path, replaced(statements, "COPIES", "CUPTI_ACTIVITY_KIND_MEMCPY"));
  const auto steps = read_trace_steps(path);
  ASSERT_EQ(steps.size(), 2U);
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(steps[s].step, 7 + static_cast<int>(s));
    EXPECT_TRUE(steps[s].steps_are_marked);
    ASSERT_EQ(steps[s].ranks.size(), 2U);
    EXPECT_EQ(steps[s].ranks[0].rank, 0);
    EXPECT_EQ(steps[s].ranks[1].rank, 1);
    const auto times = [&](std::size_t rank, const std::string& cell) {
      for (const TraceSpan& span : steps[s].ranks[rank].spans) {
        if (to_string(span.cell) == cell) return std::pair(span.start_ns, span.end_ns);
      }
      return std::pair<std::int64_t, std::int64_t>(-1, -1);
    };
    using Times = std::pair<std::int64_t, std::int64_t>;
    EXPECT_EQ(times(0, "0F0"), Times(0, 1000));
    // Nothing that it launched tells when it ran: behind what it sends.
    EXPECT_EQ(times(0, "0SEND_F0"), Times(1000, 1000));
    EXPECT_EQ(times(1, "1RECV_F0"), Times(1000, 1500));
    EXPECT_EQ(times(1, "1F0"), Times(1500, 3000));
  }
  std::filesystem::remove(path);
}

TEST(Nsight, WithoutKernelsTheRangesGiveTheTimes) {
  const std::string path = file_of_this_test();
  write_database(path, std::string(kTables) + range(1, 1000, 1100, "NULL", "1") +
                           range(1, 1200, 1300, "'PP:0B0'", "NULL"));
  const TraceTimeline trace = read_trace(path);
  ASSERT_EQ(trace.ranks.size(), 1U);
  EXPECT_EQ(trace.makespan_ns, 300);
  std::filesystem::remove(path);
}

TEST(Nsight, WhatIsNoExportIsRefusedInOneSentence) {
  const std::string path = file_of_this_test();
  const auto refused = [&] {
    const InputError error = test::refusal([&] { (void)read_trace(path); });
    test::expect_one_line(error);
    EXPECT_EQ(error.file(), path);
    return std::string(error.what());
  };
  write_database(path, "CREATE TABLE other (a INTEGER);");
  EXPECT_THAT(refused(), HasSubstr("no table NVTX_EVENTS"));
  write_database(path, "CREATE VIEW NVTX_EVENTS AS SELECT 1 AS start;");
  EXPECT_THAT(refused(), HasSubstr("no table NVTX_EVENTS"));
  write_database(path, "CREATE TABLE NVTX_EVENTS (start INTEGER);");
  EXPECT_THAT(refused(), HasSubstr("no such column"));
  write_database(path, std::string(kTables) + range(1, 10, 5, "'PP:0F0'", "NULL"));
  EXPECT_THAT(refused(), HasSubstr("from 10 to 5 ns"));
  write_database(path, std::string(kTables) + range(1, 10, 15, "'warmup'", "NULL"));
  EXPECT_THAT(refused(), HasSubstr("no action of a pipeline"));
  write_database(path, kTables);
  const std::string bytes = bytes_of(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), 700);
  EXPECT_THAT(refused(), HasSubstr("malformed"));
  std::filesystem::remove(path);
}

}  // namespace nsight_test
}  // namespace pipewright::traces
