// The journal of a search outlives its writer: kills, full disks, damage.
// PIPEWRIGHT_FAULT_TRIES=150 kills more of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "core/base/error.hpp"
#include "tests/support/command_runner.hpp"
#include "tools/running/search_journal.hpp"

namespace pipewright::test {
namespace journal_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const char* const kJob =
    R"({"schema": "pipewright.job/1", "model": {"transformer": {"hidden": 2048, "layers": 12,
  "heads": 16, "vocabulary": 50304, "sequence": 2048}}, "cluster": {"preset": "dgx-a100",
  "devices": 8}, "global_batch": 64})";
const std::string kTune = "tune job.json --exhaustive --no-synthesis --resume journal";

int tries() {
  const char* wanted = std::getenv("PIPEWRIGHT_FAULT_TRIES");
  return wanted == nullptr ? 8 : std::atoi(wanted);
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A folder with a job and the journal of its whole search.
struct Searched {
  Folder folder;
  std::string journal, plan;

  Searched() {
    folder.write("job.json", kJob);
    const auto tuned = pipewright(kTune + " -o plan.json", folder);
    EXPECT_EQ(tuned.status, 0) << tuned.err;
    journal = contents(folder.path() / "journal");
    plan = contents(folder.path() / "plan.json");
  }
  std::size_t line_start(int line) const {
    std::size_t at = 0;
    for (; line > 1; --line) at = journal.find('\n', at) + 1;
    return at;
  }
};

TEST(Journal, KeepsEveryRecordThroughKillsAtAnyMoment) {
  Searched subject;
  const std::size_t head = subject.journal.find('\n') + 1;
  // As a search that was broken off halfway left it, its last line cut.
  std::string before = subject.journal.substr(0, subject.journal.size() / 2);
  subject.folder.write("journal", before);
  before.resize(before.rfind('\n') + 1);
  std::mt19937 random(17);
  for (int i = 0; i < tries(); ++i) {
    const std::string pause = "0." + std::to_string(1000 + random() % 900).substr(1);
    shell("$PW " + kTune + " -q >/dev/null 2>&1 & PID=$!; sleep 0" + pause.substr(1) +
              "; kill -KILL $PID; wait $PID",
          subject.folder);
    const std::string after = contents(subject.folder.path() / "journal");
    ASSERT_THAT(after, StartsWith(before)) << "records were lost by kill " << i;
    before = after.substr(0, after.rfind('\n') + 1);
    if (before.size() == subject.journal.size()) {  // all is known: from half of it again
      before = subject.journal.substr(0, subject.journal.rfind('\n', head + (i + 1) * 997) + 1);
      subject.folder.write("journal", before);
    }
  }
  EXPECT_EQ(pipewright(kTune + " -o again.json", subject.folder).status, 0);
  EXPECT_EQ(contents(subject.folder.path() / "again.json"), subject.plan);
}

TEST(Journal, KeepsItsRecordsWhereTheDiskIsFull) {
  Searched subject;
  const std::string half = subject.journal.substr(0, subject.journal.rfind('\n', 20'000) + 1);
  ASSERT_LT(half.size(), 20'480U);
  subject.folder.write("journal", half);
  // A limit of the file's size is met as a full disk is: in the middle of a line.
  const auto full = shell("trap '' XFSZ; ulimit -f 40; $PW " + kTune, subject.folder);
  EXPECT_EQ(full.status, 3) << full.err;
  EXPECT_THAT(full.err, HasSubstr("journal: the journal cannot be written: File too large"));
  EXPECT_THAT(full.err, HasSubstr("goes on from it"));
  const std::string after = contents(subject.folder.path() / "journal");
  EXPECT_THAT(after, StartsWith(half));
  EXPECT_EQ(after.back(), '\n');
  EXPECT_EQ(pipewright(kTune + " -o again.json", subject.folder).status, 0);
  EXPECT_EQ(contents(subject.folder.path() / "again.json"), subject.plan);
}

TEST(Journal, TellsTheLineOfARecordThatWasAltered) {
  Searched subject;
  // A digit of a time: the record would win the search.
  std::string altered = subject.journal;
  const std::size_t time = altered.find("\"step_ns\":", subject.line_start(20)) + 10;
  const auto line = 1 + std::count(altered.begin(), altered.begin() + time, '\n');
  altered[time] = altered[time] == '1' ? '2' : '1';
  subject.folder.write("journal", altered);
  const auto refused = pipewright(kTune, subject.folder);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("journal: line " + std::to_string(line) + ": this record"));
  EXPECT_THAT(refused.err, Not(HasSubstr("internal error")));
  EXPECT_EQ(contents(subject.folder.path() / "journal"), altered);
  // What it says to do helps.
  shell("sed -i " + std::to_string(line) + "d journal", subject.folder);
  EXPECT_EQ(pipewright(kTune + " -o again.json", subject.folder).status, 0);
  EXPECT_EQ(contents(subject.folder.path() / "again.json"), subject.plan);
}

/// Sealed as the command seals it, by somebody who read the sources.
TEST(Journal, ATimeThatIsNotTrueIsNoInternalError) {
  Searched subject;
  const std::string head =
      subject.journal.substr(9, subject.journal.find('\n') - 9);  // behind its seal
  std::string forged = tools::sealed_head(head);
  for (auto& [configuration, record] :
       tools::read_journal(subject.journal, head, "journal").known) {
    const std::size_t time = record.find("\"step_ns\":");
    std::string lower = record;
    if (time != record.npos) lower.insert(time + 10, "1e0,\"was\":").replace(time + 10, 3, "1");
    forged += tools::sealed_record(head, configuration, lower);
  }
  subject.folder.write("journal", forged);
  const auto refused = pipewright(kTune, subject.folder);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("search journal"));
  EXPECT_THAT(refused.err, Not(HasSubstr("internal error")));
}

TEST(Journal, EveryFlippedBitIsTold) {
  const std::string head = R"({"schema":"pipewright.journal/2","job":{}})";
  const std::string text = tools::sealed_head(head) +
                           tools::sealed_record(head, "1f1b on 4 ranks", R"({"step_ns":1234})") +
                           tools::sealed_record(head, "gpipe on 4 ranks", R"({"step_ns":1434})");
  const auto whole = tools::read_journal(text, head, "j");
  EXPECT_EQ(whole.known.size(), 2U);
  EXPECT_EQ(whole.whole_bytes, text.size());
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {  // without its end the last line is cut off
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      EXPECT_THROW(tools::read_journal(flipped, head, "j"), InputError) << i << ' ' << bit;
    }
  }
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto cut = tools::read_journal(text.substr(0, size), head, "j");
    EXPECT_LE(cut.whole_bytes, size);
    for (const auto& [configuration, record] : cut.known)
      EXPECT_EQ(record, whole.known.at(configuration));
  }
}

TEST(Journal, ServesOtherJobsToo) {
  Searched subject;
  const std::string tune = "tune other.json --exhaustive --no-synthesis -o ";
  subject.folder.write("other.json",
                       std::string(kJob).replace(std::string(kJob).rfind("64}"), 2,
                                                 R"(64, "strategy": {"memory_limit": "30GiB"})"));
  const auto alone = pipewright(tune + "alone.json --resume own", subject.folder);
  EXPECT_EQ(alone.status, 0) << alone.err;
  const auto after = pipewright(tune + "after.json --resume journal", subject.folder);
  EXPECT_EQ(after.status, 0) << after.err;
  EXPECT_EQ(contents(subject.folder.path() / "after.json"),
            contents(subject.folder.path() / "alone.json"));
  const std::string both = contents(subject.folder.path() / "journal"),
                    own = contents(subject.folder.path() / "own");
  EXPECT_THAT(both, StartsWith(subject.journal));
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_LT(lines(both) - lines(subject.journal), lines(own) / 2);
}

TEST(Journal, IsOfSearchesAndOfOneWriter) {
  Searched subject;
  const std::string measured = R"({"schema":"pipewright.journal/2","job":{}})";
  subject.folder.write("other", tools::sealed_head(measured));
  const auto other = pipewright("tune job.json --no-synthesis --resume other", subject.folder);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("this journal is of another search"));
  subject.folder.write("text", "milk\nbread\n");
  const auto text = pipewright("tune job.json --resume text", subject.folder);
  EXPECT_EQ(text.status, 2);
  EXPECT_THAT(text.err, HasSubstr("this is no journal of a search"));
  EXPECT_EQ(contents(subject.folder.path() / "text"), "milk\nbread\n");
  const auto device = pipewright("tune job.json --resume /dev/zero", subject.folder);
  EXPECT_EQ(device.status, 2);
  EXPECT_THAT(device.err, HasSubstr("/dev/zero: is no plain file"));
  const auto locked = shell("flock journal $PW " + kTune, subject.folder);
  EXPECT_EQ(locked.status, 2) << locked.err;
  EXPECT_THAT(locked.err, HasSubstr("another search is writing this journal"));
  EXPECT_EQ(contents(subject.folder.path() / "journal"), subject.journal);
}

}  // namespace journal_test
}  // namespace pipewright::test
