// Losses and times of many steps in little memory.
#include "exec/runtime/step_log.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/command_runner.hpp"

namespace pipewright::exec {
namespace step_log_test {

constexpr std::size_t kMany = 3 * StepLog::kInMemory + 17;

StepResult step_of(std::size_t i) {
  StepResult step;
  if (i % 3 != 0) step.loss = 0.5 * static_cast<double>(i);
  step.step_ns = static_cast<std::int64_t>(7 * i);
  return step;
}

bool same(const StepResult& a, const StepResult& b) {
  return a.loss == b.loss && a.step_ns == b.step_ns;
}

StepLog log_of(std::size_t steps) {
  StepLog log;
  for (std::size_t i = 0; i < steps; ++i) log.push_back(step_of(i));
  return log;
}

void expect_all(const StepLog& log, std::size_t steps) {
  ASSERT_EQ(log.size(), steps);
  std::size_t i = 0;
  for (const StepResult& step : log) {
    ASSERT_TRUE(same(step, step_of(i))) << i;
    ++i;
  }
  EXPECT_EQ(i, steps);
  EXPECT_TRUE(same(log.front(), step_of(0)));
  EXPECT_TRUE(same(log.back(), step_of(steps - 1)));
}

/// TMPDIR for as long as it lives.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& path) {
    if (const char* value = std::getenv("TMPDIR")) before_ = value;
    ::setenv("TMPDIR", path.c_str(), 1);
  }
  ~TemporaryFolder() {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  std::string before_;
};

TEST(StepLog, GivesBackWhatWasPutIn) {
  EXPECT_TRUE(StepLog().empty());
  for (const std::size_t steps :
       {std::size_t{1}, StepLog::kInMemory, StepLog::kInMemory + 1, kMany})
    expect_all(log_of(steps), steps);
}

TEST(StepLog, LeavesNoNameBehindAlsoWhileItIsInUse) {
  const test::Folder folder;
  const TemporaryFolder temporary(folder.path().string());
  const StepLog log = log_of(kMany);
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

TEST(StepLog, WithoutAPlaceForItsFileItRemembersAllTheSame) {
  const TemporaryFolder temporary("/proc/self");  // a folder in which nobody makes files
  expect_all(log_of(kMany), kMany);
}

TEST(StepLog, ACopyStaysWhatItWasWhileItsOriginalGrows) {
  StepLog log = log_of(StepLog::kInMemory + 5);
  const StepLog copy = log;
  for (std::size_t i = log.size(); i < kMany; ++i) log.push_back(step_of(i));
  expect_all(copy, StepLog::kInMemory + 5);
  expect_all(log, kMany);
}

}  // namespace step_log_test
}  // namespace pipewright::exec
