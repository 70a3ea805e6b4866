// Paddle's cluster files and tuner jobs with random damage: a reader returns or throws InputError,
// and what the cluster's reader accepts can be written and read back; what the job's accepts is an
// object that our own reader takes or refuses.
#include <gtest/gtest.h>

#include <random>

#include "core/base/error.hpp"
#include "core/cluster/paddle.hpp"
#include "core/plan/job.hpp"
#include "core/plan/paddle_tuner_job.hpp"

namespace pipewright {
namespace {

constexpr int kIterations = 20'000;

std::size_t below(std::mt19937_64& random, std::size_t end) { return random() % end; }

/// Puts in a word, takes something out, doubles something, or writes another digit.
std::string damaged(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> words = {
      "0", "1e18", "-1", "\"auto\"", "null", "true", "{}", "[", "]", "}", ",", "99999", "[1,2]"};
  for (std::size_t times = 1 + below(random, 3); times > 0; --times) {
    const std::size_t at = below(random, text.size() + 1), length = below(random, 12);
    const std::size_t how = below(random, 7);
    if (how == 0) text.insert(at, words[below(random, words.size())]);
    if (how == 1) text.erase(at, length);
    if (how == 2) text.insert(at, text.substr(below(random, text.size() + 1), length));
    if (how < 3 || text.empty()) continue;
    const std::size_t digit = text.find_first_of("0123456789", below(random, text.size()));
    if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(random, 10));
  }
  return text;
}

struct Tally {
  int accepted = 0, refused = 0;
};

template <class Read>
Tally damage_and_read(const std::string& valid, unsigned seed, Read read) {
  std::mt19937_64 random(seed);
  Tally tally;
  for (int k = 0; k < kIterations; ++k) {
    const std::string text = damaged(valid, random);
    try {
      const Json document = parse_json(text, "file.json");
      read(JsonCursor(document, "file.json"));
      ++tally.accepted;
    } catch (const InputError& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      ++tally.refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "threw " << error.what() << "\nfor " << text;
    }
  }
  return tally;
}

TEST(RandomPaddleFiles, Clusters) {
  const std::string valid =
      R"({"alpha_latency": {"inter": {"ring": "NET"}, "intra": {"ring": 3}, "switch": 10},
          "machines": [{"hostname": "a", "devices": [
              {"global_id": 0, "local_id": 0, "type": "GPU", "model": "A100", "memory": 40},
              {"global_id": 1, "local_id": 1, "type": "NIC"}]},
            {"hostname": "b", "devices": [
              {"global_id": 2, "local_id": 0, "type": "GPU", "model": "V100", "memory": 32}],
             "links": [{"source_global_id": 1, "target_global_id": 2, "type": "NET",
                        "bandwidth": 12, "hop": 1}]}]})";
  const Tally tally = damage_and_read(valid, 3, [](const JsonCursor& document) {
    if (!is_paddle_cluster(document)) throw InputError("not Paddle's");
    const Json written = to_json(read_paddle_cluster(document));
    EXPECT_EQ(to_json(read_cluster(JsonCursor(written, "written.json"))), written);
  });
  EXPECT_GT(tally.accepted, 1000);
  EXPECT_GT(tally.refused, 1000);
}

TEST(RandomPaddleFiles, TunerJobs) {
  const std::string valid =
      R"({"dp_degree": "auto", "mp_degree": [1, 2], "pp_degree": 4, "sharding_degree": 1,
          "sharding_stage": 1, "use_recompute": [true, false], "recompute_granularity": "full",
          "nodes": 2, "gpus_per_node": 8, "task_limit": 10, "max_mem_usage": 70,
          "model_cfg": {"hidden_size": 64, "global_batch_size": 16, "num_layers": 4,
            "num_attention_heads": 4, "vocab_size": 100, "seq_length": 32}})";
  const Tally tally = damage_and_read(valid, 4, [](const JsonCursor& document) {
    if (!is_paddle_tuner_job(document)) throw InputError("not Paddle's");
    const PaddleTunerJob result = read_paddle_tuner_job(document);
    read_job(JsonCursor(result.job, "file.json"));
  });
  EXPECT_GT(tally.accepted, 1000);
  EXPECT_GT(tally.refused, 1000);
}

}  // namespace
}  // namespace pipewright
