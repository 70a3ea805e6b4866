// A checkpoint outlives whatever stops its successor: a kill before any change of the disk, a full
// disk, a file that was cut or changed. Files are real, processes are killed for real.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/unfinished_files.hpp"
#include "exec/checkpoint/checkpoint.hpp"
#include "tests/support/command_runner.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::test {
namespace checkpoint_test {

namespace fs = std::filesystem;
using exec::Checkpoint;

constexpr std::int64_t kElements = 3000;

std::vector<float> array_of(int step, int rank) {
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(step) + static_cast<float>(i) / static_cast<float>(rank + 3);
  return values;
}

std::string name_of(int rank) { return std::to_string(rank) + ".layer/weight"; }

/// As a training of two ranks saves the step; older ones go beyond `keep`.
void save(const fs::path& all, int step, int keep, const exec::DiskWatch& watch = {}) {
  const fs::path folder = exec::checkpoint_folder(all, step);
  std::vector<exec::CheckpointPart> parts;
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<float> values = array_of(step, rank);
    const std::vector<exec::StatePiece> pieces = {
        {name_of(rank), std::string(exec::kValueSlot), 0, kElements, values}};
    parts.push_back(exec::write_checkpoint_part(folder, rank, pieces, watch));
  }
  const exec::CheckpointFacts facts{.model = model_preset("mlp"),
                                    .step = step,
                                    .updates = step,
                                    .optimizer = "sgd",
                                    .seed = 1,
                                    .numerics = "fast",
                                    .micro_batches = 1,
                                    .micro_batch_size = 1};
  exec::write_manifest(folder, facts, parts, watch);
  if (keep > 0) exec::prune_checkpoints(all, keep, watch);
}

/// Opens the newest checkpoint and compares every element; returns its step.
int step_in(const fs::path& all) {
  const Checkpoint checkpoint = Checkpoint::open(all);
  const int step = checkpoint.facts().step;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<float> values(kElements);
    checkpoint.read(name_of(rank), exec::kValueSlot, values);
    EXPECT_EQ(values, array_of(step, rank)) << "step " << step << ", rank " << rank;
  }
  return step;
}

/// Runs `action` in a process of its own that is killed before its n-th change of the disk; false
/// if it came to its end before.
bool killed_at(int n, const std::function<void(const exec::DiskWatch&)>& action) {
  const pid_t child = fork();
  if (child == 0) {
    int left = n;
    action([&left](std::string_view, const fs::path&) {
      if (left-- == 0) raise(SIGKILL);
    });
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(KilledWhileSaving, TheOneBeforeLoadsUntilTheNewOneIsWhole) {
  int points = 0, old_ones = 0;
  for (bool killed = true; killed; ++points) {
    const Folder folder;
    save(folder.path(), 3, 1);
    killed = killed_at(points, [&](const auto& watch) { save(folder.path(), 6, 1, watch); });
    const int found = step_in(folder.path());
    EXPECT_TRUE(found == 3 || (found == 6 && points >= old_ones)) << "point " << points;
    if (found == 3) old_ones = points + 1;
    // And the next save is not disturbed by what was left behind.
    save(folder.path(), 9, 1);
    EXPECT_EQ(step_in(folder.path()), 9);
    EXPECT_EQ(folder.names().size(), 1U);
  }
  EXPECT_GE(points, 15);
  EXPECT_GE(old_ones, 12);
}

TEST(KilledWhileSaving, TheSameStepAgainNeverHarmsTheFirst) {
  int points = 0;
  for (bool killed = true; killed; ++points) {
    const Folder folder;
    save(folder.path(), 3, 0);
    killed = killed_at(points, [&](const auto& watch) { save(folder.path(), 3, 0, watch); });
    EXPECT_EQ(step_in(folder.path()), 3) << "point " << points;
  }
  EXPECT_GE(points, 10);
}

TEST(KilledWhileSaving, AFirstOneThatWasNotFinishedIsNone) {
  const Folder folder;
  ASSERT_TRUE(killed_at(9, [&](const auto& watch) { save(folder.path(), 3, 0, watch); }));
  const InputError error = refusal([&] { Checkpoint::open(folder.path()); });
  EXPECT_NE(error.message().find("not finished"), std::string::npos) << error.what();
}

TEST(SavingOrder, FlushesEachFileBeforeItsNameAndAllPartsBeforeTheManifest) {
  // A power cut forgets what was not flushed: then the order of these calls is all there is.
  const Folder folder;
  std::set<std::string> flushed;
  std::string last;
  int renamed = 0;
  save(folder.path(), 3, 0, [&](std::string_view what, const fs::path& path) {
    const std::string file = path.filename().string();
    if (what == "write") flushed.erase(file);
    if (what == "flush") flushed.insert(file);
    if (last == "rename") {
      EXPECT_EQ(what, "flush folder");
    }
    if (last == "make folder") {
      EXPECT_EQ(what, "flush folder");
    }
    if (what == "rename") {
      EXPECT_TRUE(flushed.contains(file)) << file;
      EXPECT_EQ(file.starts_with("checkpoint.json"), ++renamed == 3) << file;
    }
    last = what;
  });
  EXPECT_EQ(renamed, 3);
}

TEST(LeavingAtOnce, RemovesWhatIsUnderATemporaryName) {
  const Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    exec::DurableFile first(folder.path(), "rank-0"), second(folder.path(), "rank-1");
    first.write(std::as_bytes(std::span("half of it")));
    exec::DurableFile whole(folder.path(), "whole");
    whole.commit("whole");
    remove_unfinished_files();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(folder.names(), std::vector<std::string>({"whole"}));
}

/// 64 KiB at the path, for this process alone; false where the user may not.
bool mount_small_disk(const std::string& path) {
  const std::string user = "0 " + std::to_string(getuid()) + " 1";
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/uid_map") << user;
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", path.c_str(), "tmpfs", 0, "size=64k") == 0;
}

TEST(FullDisk, TheSaveSaysWhyAndTheOneBeforeLoads) {
  const Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    const std::string disk = folder.path().string();
    if (!mount_small_disk(disk)) _exit(77);
    save(disk, 3, 0);
    int status = 1;
    try {
      save(disk, 6, 0);
      save(disk, 9, 0);
      save(disk, 12, 0);
    } catch (const MachineError& error) {
      const std::string text = error.what();
      const bool clear = text.find("No space left on device") != std::string::npos &&
                         text.find("rank-") != std::string::npos;
      bool litter = false;
      for (const auto& entry : fs::recursive_directory_iterator(disk))
        litter |= entry.path().extension() == ".tmp";
      status = clear && !litter && step_in(disk) == 6 ? 0 : 2;
    }
    _exit(status);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this user may not mount a small disk";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

class Damaged : public testing::Test {
 protected:
  Damaged() { save(folder_.path(), 3, 0); }

  fs::path part() const {
    for (const auto& entry : fs::directory_iterator(step()))
      if (entry.path().filename().string().starts_with("rank-1")) return entry.path();
    return {};
  }
  fs::path step() const { return exec::checkpoint_folder(folder_.path(), 3); }
  fs::path manifest() const { return step() / "checkpoint.json"; }
  void change_manifest(const std::function<void(Json&)>& change) const {
    Json document = parse_json(read_text(manifest().string()), "manifest");
    change(document);
    write_file(manifest(), to_text(document));
  }
  void expect_refused(const fs::path& file, const std::string& words) const {
    const InputError error = refusal([&] { Checkpoint::open(folder_.path()); });
    expect_one_line(error);
    EXPECT_EQ(error.file(), file.string());
    EXPECT_NE(error.message().find(words), std::string::npos) << error.what();
  }

  Folder folder_;
};

TEST_F(Damaged, ATruncatedPartIsNamedWithBothSizes) {
  fs::resize_file(part(), 4 * kElements - 8);
  expect_refused(part(), "is truncated: it has 11992 bytes, the checkpoint 12000");
}

TEST_F(Damaged, OneChangedBitIsSeen) {
  std::fstream file(part(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(777);
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(777);
  file.put(byte);
  file.close();
  expect_refused(part(), "is damaged");
}

TEST_F(Damaged, AMissingPartIsNamed) {
  const fs::path gone = part();
  fs::remove(gone);
  expect_refused(gone, "cannot be read");
}

TEST_F(Damaged, AnotherVersionIsRefused) {
  change_manifest([](Json& json) { json["schema"] = "pipewright.checkpoint/2"; });
  expect_refused(manifest(), "reads version 1 only");
}

TEST_F(Damaged, AnUnknownKeyIsRefused) {
  change_manifest([](Json& json) { json["stpe"] = 3; });
  expect_refused(manifest(), "did you mean \"step\"?");
}

TEST_F(Damaged, APieceOutsideItsFileIsRefused) {
  change_manifest([](Json& json) { json["parts"][1]["arrays"][0]["offset_bytes"] = 4; });
  expect_refused(manifest(), "within the 12000 bytes");
}

TEST_F(Damaged, AFileNameThatLeadsElsewhereIsRefused) {
  change_manifest([](Json& json) { json["parts"][1]["file"] = "../rank-1.bin"; });
  expect_refused(manifest(), "beside checkpoint.json");
}

TEST_F(Damaged, AnArrayWithAHoleIsRefused) {
  change_manifest([](Json& json) {
    json["parts"][1]["arrays"][0]["first"] = 1;
    json["parts"][1]["arrays"][0]["count"] = kElements - 1;
  });
  expect_refused(manifest(), "do not follow one another");
}

TEST_F(Damaged, AnArrayWithoutItsEndIsRefused) {
  change_manifest([](Json& json) { json["parts"][1]["arrays"][0]["count"] = kElements - 1; });
  expect_refused(manifest(), "is missing");
}

TEST_F(Damaged, APieceThatLiesAcrossElementsIsRefused) {
  change_manifest([](Json& json) {
    json["parts"][1]["arrays"][0]["offset_bytes"] = 1;
    json["parts"][1]["bytes"] = 4 * kElements + 4;
  });
  expect_refused(manifest(), "a multiple of 4");
}

TEST_F(Damaged, APartWithBytesOfNoArrayIsRefused) {
  // Both arrays are whole: only the second one's place is wrong.
  change_manifest([](Json& json) {
    Json& part = json["parts"][1];
    part["bytes"] = 4 * kElements + 4;
    part["arrays"][0]["offset_bytes"] = 4;
  });
  expect_refused(manifest(), "do not fill its 12004 bytes");
}

TEST_F(Damaged, ArraysThatOverlapAreRefused) {
  change_manifest([](Json& json) {
    Json& arrays = json["parts"][1]["arrays"];
    arrays.push_back(arrays[0]);
    arrays[1]["slot"] = "mean";
  });
  expect_refused(manifest(), "do not fill its 12000 bytes");
}

TEST_F(Damaged, OneChangedBitOfAnyByteOfTheManifestIsSeen) {
  const std::string whole = read_text(manifest().string());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const std::size_t bit : {at % 8, (at + 5) % 8}) {
      std::string text = whole;
      text[at] = static_cast<char>(text[at] ^ (1 << bit));
      write_file(manifest(), text);
      EXPECT_THROW(Checkpoint::open(folder_.path()), InputError)
          << "byte " << at << ": " << whole[at] << " became " << text[at];
    }
  }
  write_file(manifest(), whole);
  EXPECT_EQ(step_in(folder_.path()), 3);
}

TEST_F(Damaged, AManifestThatWasChangedByHandIsRefused) {
  change_manifest([](Json& json) { json["updates"] = 4; });
  expect_refused(manifest(), "its checksum is not the one that it names");
}

TEST_F(Damaged, AManifestOfAnOlderReleaseIsReadAndItsStepIsThatOfTheFolder) {
  EXPECT_TRUE(Checkpoint::open(folder_.path()).is_sealed());
  change_manifest([](Json& json) { json.erase("crc32"); });
  EXPECT_FALSE(Checkpoint::open(folder_.path()).is_sealed());
  EXPECT_EQ(step_in(folder_.path()), 3);
  change_manifest([](Json& json) { json["step"] = 2; });
  expect_refused(manifest(), "expected the step of its folder, step-00000003");
}

TEST(Pieces, SharedBetweenRanksReadAsOneArray) {
  // As ranks that share an optimizer's state write it.
  const Folder folder;
  const std::vector<float> whole = array_of(1, 0);
  const std::span<const float> all(whole);
  std::vector<exec::CheckpointPart> parts;
  for (const int rank : {1, 0}) {
    const auto half = all.subspan(rank == 0 ? 0 : 1000, rank == 0 ? 1000 : kElements - 1000);
    const std::vector<exec::StatePiece> pieces = {
        {"p", "mean", rank == 0 ? 0 : 1000, kElements, half}};
    parts.push_back(exec::write_checkpoint_part(folder.path(), rank, pieces));
  }
  exec::write_manifest(folder.path(),
                       {.model = model_preset("mlp"),
                        .step = 1,
                        .updates = 1,
                        .optimizer = "adamw",
                        .seed = 1,
                        .numerics = "fast",
                        .micro_batches = 1,
                        .micro_batch_size = 1},
                       parts);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint.size_of("p", "mean"), kElements);
  EXPECT_EQ(checkpoint.size_of("p", "value"), std::nullopt);
  std::vector<float> found(700);
  checkpoint.read("p", "mean", found, 600);
  EXPECT_TRUE(std::equal(found.begin(), found.end(), whole.begin() + 600));
}

}  // namespace checkpoint_test
}  // namespace pipewright::test
