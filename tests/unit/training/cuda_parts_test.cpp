// The parts of exec/devices/cuda that need no GPU: the pool, the sizes of partitions, who lives
// where, and what is refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "core/base/error.hpp"
#include "exec/devices/cuda/module.hpp"
#include "exec/devices/cuda/partition_sizes.hpp"
#include "exec/devices/cuda/run.hpp"
#include "exec/devices/cuda/sites.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "tests/parity/outcome.hpp"

namespace pipewright::exec::cuda {
namespace cuda_parts_test {

// --- The pool ---

class CudaPool : public testing::Test {
 protected:
  PoolSource source() {
    PoolSource from;
    from.allocate = [this](std::size_t bytes) {
      ++allocated_;
      return std::malloc(bytes);
    };
    from.release = [this](void* at) {
      ++released_;
      std::free(at);
    };
    from.before_reuse = [this](const Event& event) { waited_.push_back(event.get()); };
    return from;
  }
  /// An event that is nothing but its address.
  static Event event() { return std::make_shared<int>(0); }

  int allocated_ = 0, released_ = 0;
  std::vector<void*> waited_;
};

TEST_F(CudaPool, HandsOutABlockOfTheSameSizeAgain) {
  Pool pool(source());
  void* first = nullptr;
  {
    const Buffer a = pool.take(100), b = pool.take(100), c = pool.take(200);
    first = a.at();
    EXPECT_NE(a.at(), b.at());
    EXPECT_EQ(allocated_, 3);
    EXPECT_EQ(pool.figures().live_bytes, 400);
  }
  EXPECT_EQ(pool.figures().live_bytes, 0);
  EXPECT_EQ(pool.figures().peak_bytes, 400);
  const Buffer again = pool.take(100), other = pool.take(100), more = pool.take(100);
  EXPECT_TRUE(again.at() == first || other.at() == first);
  EXPECT_EQ(allocated_, 4);
  EXPECT_EQ(pool.figures().reserved_bytes, 500);
  EXPECT_EQ(pool.figures().peak_bytes, 400);
}

TEST_F(CudaPool, UsesABlockWithRoomAgainForOtherSizes) {
  Pool pool(source());
  Buffer small = pool.take(40, 100);
  void* const at = small.at();
  EXPECT_EQ(small.bytes(), 40U);
  small.reset();
  const Buffer large = pool.take(90, 100);
  EXPECT_EQ(large.at(), at);
  EXPECT_EQ(large.bytes(), 90U);
  EXPECT_EQ(pool.figures().live_bytes, 90);
  EXPECT_EQ(pool.figures().peak_bytes, 90);
  EXPECT_EQ(pool.figures().reserved_bytes, 100);
}

TEST_F(CudaPool, CountsHandlesAndSaysWhetherABlockIsShared) {
  Pool pool(source());
  Buffer a = pool.take(8);
  EXPECT_FALSE(a.is_shared());
  Buffer b = a;
  EXPECT_TRUE(a.is_shared());
  b.reset();
  EXPECT_FALSE(a.is_shared());
  EXPECT_FALSE(static_cast<bool>(b));
  EXPECT_EQ(b.at(), nullptr);
  EXPECT_EQ(pool.figures().live_bytes, 8);
}

TEST_F(CudaPool, WaitsForTheGuardsOfABlockBeforeItIsUsedAgainAndOnlyThen) {
  Pool pool(source());
  const Event reader = event();
  Buffer a = pool.take(8);
  Pool::guard(a, reader);
  a.reset();
  EXPECT_TRUE(waited_.empty());
  a = pool.take(8);
  EXPECT_EQ(waited_, std::vector<void*>{reader.get()});
  a.reset();
  a = pool.take(8);
  EXPECT_EQ(waited_.size(), 1U) << "a guard counts once";
}

TEST_F(CudaPool, GuardsEveryBlockWithWhatTheSourceSays) {
  PoolSource from = source();
  const Event last_use = event();
  from.after_use = [&] { return last_use; };
  Pool pool(from);
  pool.take(8).reset();
  const Buffer again = pool.take(8);
  EXPECT_EQ(waited_, std::vector<void*>{last_use.get()});
}

/// An event belongs to the place where it is made, which only the pool's thread may enter.
TEST_F(CudaPool, GuardsABlockThatAnotherThreadHasDroppedWhenItIsTakenAgain) {
  PoolSource from = source();
  const Event last_use = event();
  std::vector<std::thread::id> asked;
  from.after_use = [&] {
    asked.push_back(std::this_thread::get_id());
    return last_use;
  };
  Pool pool(from);
  Buffer block = pool.take(8);
  std::thread([dropped = std::move(block)]() mutable { dropped.reset(); }).join();
  EXPECT_TRUE(asked.empty());
  block = pool.take(8);
  EXPECT_EQ(asked, std::vector<std::thread::id>{std::this_thread::get_id()});
  EXPECT_EQ(waited_, std::vector<void*>{last_use.get()});
  EXPECT_EQ(allocated_, 1);
}

TEST_F(CudaPool, GivesUnusedBlocksBackWhereTheSourceHasNoMemoryLeft) {
  PoolSource from = source();
  std::int64_t left = 300;
  std::vector<void*> over;
  from.allocate = [&](std::size_t bytes) {
    if (left < static_cast<std::int64_t>(bytes)) throw RunError("no memory");
    left -= static_cast<std::int64_t>(bytes);
    return std::malloc(bytes);
  };
  from.release = [&](void* at) {
    left += 100;
    std::free(at);
  };
  from.before_release = [&](const Event& guard) { over.push_back(guard.get()); };
  Pool pool(from);
  const Event reader = event();
  Buffer a = pool.take(100), b = pool.take(100);
  const Buffer kept = pool.take(100);
  Pool::guard(a, reader);
  a.reset();
  b.reset();
  const Buffer larger = pool.take(200);
  EXPECT_EQ(over, std::vector<void*>{reader.get()});
  EXPECT_EQ(pool.figures().reserved_bytes, 300);
  EXPECT_EQ(pool.figures().live_bytes, 300);
  EXPECT_THROW(static_cast<void>(pool.take(100)), RunError) << "nothing is unused any more";
}

TEST_F(CudaPool, GivesItsMemoryBackWhenPoolAndHandlesAreGone) {
  Buffer survivor;
  {
    Pool pool(source());
    pool.take(16).reset();
    survivor = pool.take(32);
  }
  EXPECT_EQ(released_, 0) << "a handle still reaches into it";
  survivor.reset();
  EXPECT_EQ(released_, 2);
}

// --- Partitions and places ---

TEST(CudaPartitions, AreEqualAlignedAndNotTooSmall) {
  const SmFacts h100{132, 8, 8};
  EXPECT_EQ(partition_sms(h100, 1), 0);
  EXPECT_EQ(partition_sms(h100, 2), 64);
  EXPECT_EQ(partition_sms(h100, 3), 40);
  EXPECT_EQ(partition_sms(h100, 4), 32);
  EXPECT_EQ(partition_sms(h100, 8), 16);
  EXPECT_EQ(partition_sms(h100, 16), 8);
  EXPECT_EQ(partition_sms({108, 4, 2}, 8), 12);
  EXPECT_EQ(partition_sms({108, 2, 4}, 27), 4);
  for (int ranks = 2; ranks <= 16; ++ranks) {
    const int each = partition_sms(h100, ranks);
    EXPECT_EQ(each % 8, 0);
    EXPECT_LE(each * ranks, 132);
    EXPECT_GT((each + 8) * ranks, 132) << "another eight would have fitted";
  }
}

TEST(CudaPartitions, ThatDoNotFitAreRefusedWithTheNumberThatDoes) {
  try {
    partition_sms({132, 8, 8}, 17);
    FAIL() << "seventeen ranks on one GPU";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("room for 16 ranks"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(partition_sms({132, 0, 0}, 2), MachineError);
  EXPECT_EQ(partition_sms({132, 0, 0}, 1), 0) << "an undivided GPU needs no partitions";
}

/// 132 SMs of which the driver makes no two parts of more than `most`.
pipewright_cuda gpu_that_gives(int (*split)(int, int, int, void**)) {
  pipewright_cuda table{};
  table.why = [] { return "the GPU can be divided into 1 partitions"; };
  table.gpu = [](int, pipewright_cuda_gpu* facts) {
    *facts = {"uneven", 132, 9, 0, 0, 8, 8};
    return 0;
  };
  table.release_partition = [](void*) {};
  table.split = split;
  return table;
}

TEST(CudaPartitions, AreSmallerWhereTheGpusClustersDoNotAllowEqualPartsOfThatSize) {
  const pipewright_cuda table =
      gpu_that_gives([](int, int sms, int, void**) { return sms > 48 ? 1 : 0; });
  Partitions partitions(table);
  EXPECT_EQ(partitions.divide(0, 2).sms, 48);
  EXPECT_EQ(partitions.divide(0, 4).sms, 32);
  EXPECT_EQ(partitions.divide(0, 1).sms, 0);
}

TEST(CudaPartitions, ThatTheDriverNeverGivesAreRefusedInItsFirstWords) {
  static int asked;
  asked = 0;
  const pipewright_cuda table = gpu_that_gives([](int, int, int, void**) { return ++asked; });
  Partitions partitions(table);
  EXPECT_THROW(partitions.divide(0, 2), RunError);
  EXPECT_EQ(asked, 8) << "64, 56 and so on to 8 SMs";
}

TEST(CudaPlaces, NeighboursShareAGpuAndAllGpusAreUsed) {
  std::vector<int> found;
  for (int r = 0; r < 8; ++r) found.push_back(gpu_of_rank(r, 8, 4));
  EXPECT_EQ(found, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(gpu_of_rank(2, 3, 8), 2);
  EXPECT_EQ(gpu_of_rank(4, 5, 2), 1);
  EXPECT_EQ(gpu_of_rank(7, 8, 1), 0);
}

// --- Refusals ---

std::string refusal_of(const Program& program, const CudaTraining& training) {
  try {
    require_trainable(program, training);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(CudaRefusals, NameWhatNoGpuTrainsYet) {
  using tests::program_of;
  const Program program = program_of({"1f1b", 2, 4, 1, "torch"});
  const tests::Setting setting(program);
  CudaTraining training{setting.training, Precision::Exact, {}, {}};
  EXPECT_EQ(refusal_of(program, training), "");
  EXPECT_NE(refusal_of(program_of({"pipedream", 2, 4, 1, "torch"}), training).find("versions"),
            std::string::npos);
  const Model latent = model_preset("deepseek-tiny");
  training.training.model = &latent;
  EXPECT_EQ(refusal_of(program, training), "");
  Model own = setting.model;
  own.layers.emplace_back().kind = LayerKind::Custom;
  training.training.model = &own;
  const std::string layer = refusal_of(program, training);
  EXPECT_NE(layer.find("kind custom"), std::string::npos) << layer;
  EXPECT_NE(layer.find("--device cpu"), std::string::npos) << layer;
  const Model images = model_preset("resnet-tiny");
  training.training.model = &images;
  EXPECT_EQ(refusal_of(program, training), "");
  training.training = setting.training;
  training.training.save.emplace();
  EXPECT_EQ(refusal_of(program, training), "");
  training.training = setting.training;
  training.training.mode = RunMode::Evaluate;
  EXPECT_EQ(refusal_of(program, training), "");
}

TEST(CudaModule, AsksForAllConnectionsUnlessTheUserHasSaidOtherwise) {
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  static_cast<void>(why_no_gpu());
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
  static_cast<void>(why_no_gpu());
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "4");
}

TEST(CudaModule, SaysWhatIsMissingOrIsThere) {
  const std::string why = why_no_gpu();
  if (why.empty()) {
    EXPECT_GT(require_gpu().gpus(), 0);
    return;
  }
  try {
    require_gpu();
    FAIL() << "a GPU that is not there";
  } catch (const MachineError& error) {
    EXPECT_EQ(error.what(), why);
  }
}

}  // namespace cuda_parts_test
}  // namespace pipewright::exec::cuda
