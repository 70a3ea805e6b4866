// What a GPU is given for a model of a real size: how many launches, of how many threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "core/base/json.hpp"
#include "exec/devices/cuda/stage.hpp"
#include "tests/support/counting_cuda.hpp"

namespace pipewright::exec::cuda {
namespace cuda_launches_test {

using tests::counting_cuda;
using tests::Launch;
using tests::take_launches;

constexpr int kSamples = 2, kSequence = 2048, kWidth = 2048, kVocabulary = 50257;
constexpr int kRows = kSamples * kSequence;
// 132 SMs with 512 threads each, and what is worth so many.
constexpr std::size_t kThreadsOfGpu = 132 * 512, kMuchWork = std::size_t{4} << 20;

Json transformer(const char* style) {
  return {{"schema", "pipewright.model/1"},
          {"transformer",
           {{"style", style},
            {"hidden", kWidth},
            {"layers", 1},
            {"heads", 16},
            {"ffn", 4 * kWidth},
            {"vocabulary", kVocabulary},
            {"sequence", kSequence}}}};
}

Model gpt() { return read_model(JsonCursor(transformer("gpt"), "gpt.json")); }

/// Four heads share a head of keys.
Model llama() {
  Json text = transformer("llama");
  text["transformer"]["kv_heads"] = 4;
  return read_model(JsonCursor(text, "llama.json"));
}

/// Eight experts, to each of which a quarter of the rows goes.
constexpr int kExperts = 8, kTopK = 2;
Model mixtral() {
  Json text = transformer("llama");
  text["transformer"].update({{"kv_heads", 4}, {"experts", kExperts}, {"top_k", kTopK}});
  return read_model(JsonCursor(text, "mixtral.json"));
}

/// The widths of a head in DeepSeek-V3 (arXiv 2412.19437), in as few layers.
Model latent() {
  Json text = transformer("llama");
  text["transformer"]["latent_attention"] = {
      {"query_rank", 512}, {"key_value_rank", 256}, {"plain", 128}, {"rotary", 64}, {"value", 128}};
  return read_model(JsonCursor(text, "latent.json"));
}

int count(const std::vector<Launch>& all, Launch::Kind kind) {
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [&](const Launch& one) { return one.kind == kind; }));
}

int computing(const std::vector<Launch>& all) {
  return count(all, Launch::Kind::Kernel) + count(all, Launch::Kind::Product);
}

void expect_the_whole_gpu(const std::vector<Launch>& all) {
  for (const Launch& one : all) {
    if (one.kind != Launch::Kind::Kernel || one.work <= kMuchWork) continue;
    EXPECT_GE(one.threads, kThreadsOfGpu) << one.what << ", " << one.work << " numbers";
  }
}

/// Layers of the model, as one stage in bf16.
struct OneStage {
  OneStage(int first, int end, double most_norm = 0, Model what = gpt())
      : model(std::move(what)), queue(counting_cuda(), {0, nullptr, Precision::Bfloat16}) {
    StageSpec spec;
    spec.model = &model;
    spec.first_layer = first;
    spec.end_layer = end;
    spec.micro_batch_size = kSamples;
    spec.micro_batches = 1;
    spec.optimizer.clip_grad_norm = most_norm;
    stage = std::make_unique<Stage>(queue, spec);
    stage->begin_step(0);
    take_launches();
  }
  Buffer message() {
    return queue.memory().take(std::size_t{kRows} * kWidth * queue.number_bytes());
  }

  Model model;
  Queue queue;
  std::unique_ptr<Stage> stage;
};

void expect_few_a_pass(const Model& model) {
  OneStage one(1, 2, 0, model);
  ASSERT_EQ(one.model.layers.size(), 3U);
  Buffer input = one.message(), gradient = one.message();
  static_cast<void>(one.stage->forward(0, std::move(input)));
  const auto forward = take_launches();
  EXPECT_LE(computing(forward), 25);
  static_cast<void>(one.stage->backward_input(0, std::move(gradient)));
  const auto backward = take_launches();
  EXPECT_LE(computing(backward), 25);
  one.stage->backward_weight(0);
  const auto weight = take_launches();
  EXPECT_LE(computing(weight), 25);
  EXPECT_EQ(count(weight, Launch::Kind::Clear), 0) << "gradients are written, not cleared";
  for (const auto* pass : {&forward, &backward, &weight}) {
    EXPECT_GT(computing(*pass), 5);
    expect_the_whole_gpu(*pass);
  }
}

TEST(CudaLaunches, ABlockTakesFewOfThemAPass) {
  for (const Model& model : {gpt(), llama(), latent()}) expect_few_a_pass(model);
}

/// Products of all experts, whose rows the host has to know, are one launch, except for gradients
/// of weights, whose results are float32; and one tells where their matrices are.
TEST(CudaLaunches, ExpertsTakeOneLaunchForAKindOfProducts) {
  std::vector<std::int32_t> begins;
  for (int e = 0; e <= kExperts; ++e) begins.push_back(e * (kRows * kTopK / kExperts));
  tests::copies_bring(begins);
  OneStage one(1, 2, 0, mixtral());
  Buffer input = one.message(), gradient = one.message();
  static_cast<void>(one.stage->forward(0, std::move(input)));
  const auto forward = take_launches();
  static_cast<void>(one.stage->backward_input(0, std::move(gradient)));
  const auto backward = take_launches();
  one.stage->backward_weight(0);
  const auto weight = take_launches();
  tests::copies_bring({});
  EXPECT_EQ(count(forward, Launch::Kind::Copy), 2)
      << "where the rows of each expert begin, and once the turns of rotary positions";
  EXPECT_EQ(count(backward, Launch::Kind::Copy) + count(weight, Launch::Kind::Copy), 0);
  for (const auto* pass : {&forward, &backward}) {
    EXPECT_LE(count(*pass, Launch::Kind::Product), 2 + 10) << "attention's, the router's, two more";
    EXPECT_LE(computing(*pass), 2 * 2 + 25);
  }
  EXPECT_GE(count(weight, Launch::Kind::Product), 2 * kExperts);
  EXPECT_LE(computing(weight), 2 * kExperts + 25);
  for (const auto* pass : {&forward, &backward, &weight}) expect_the_whole_gpu(*pass);
  EXPECT_LE(count(weight, Launch::Kind::Clear), 2) << "the arrays of all experts, up and down";
}

TEST(CudaLaunches, AnUpdateOfAllParametersIsOneLaunch) {
  OneStage one(1, 2);
  one.stage->update(0);
  const auto update = take_launches();
  EXPECT_EQ(count(update, Launch::Kind::Kernel), 1);
  EXPECT_EQ(count(update, Launch::Kind::Copy), 1) << "the factors";
  expect_the_whole_gpu(update);
}

/// Two squares: of parameters that decay, and of the others.
TEST(CudaLaunches, ANormTakesTheWholeGpu) {
  OneStage one(0, 3, 1.0);
  static_cast<void>(one.queue.weights());
  Buffer total = one.queue.memory().take(4 * sizeof(std::int64_t));
  one.stage->weights().add_squares(total.longs());
  const auto squares = take_launches();
  EXPECT_LE(computing(squares), 2 * 5);
  expect_the_whole_gpu(squares);
}

TEST(CudaLaunches, WeightsStartOnTheGpu) {
  take_launches();
  OneStage one(0, 3);
  for (const ParameterView& view : one.stage->parameters())
    EXPECT_TRUE(view.value.empty()) << view.name << " lies on the host";
}

TEST(CudaLaunches, EmbeddingHeadAndLossTakeTheWholeGpu) {
  OneStage one(0, 3);
  MicroBatch batch;
  batch.tokens.assign(kRows, 1);
  batch.labels.assign(kRows, 2);
  one.stage->set_batch(0, batch);
  static_cast<void>(one.stage->forward(0, {}));
  static_cast<void>(one.stage->backward_input(0, {}));
  one.stage->backward_weight(0);
  const auto all = take_launches();
  expect_the_whole_gpu(all);
  EXPECT_EQ(count(all, Launch::Kind::Clear), 2) << "the tables of tokens and positions alone";
}

}  // namespace cuda_launches_test
}  // namespace pipewright::exec::cuda
