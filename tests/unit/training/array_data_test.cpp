// Training data from arrays: every sample once an epoch, whatever the cut, and what does not fit is
// refused with the file's name.
#include "exec/data/array_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "exec/base/random.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright::exec {
namespace array_data_test {

using test::expect_one_line;
using test::refusal;

constexpr std::int64_t kSamples = 24;

Model classifier() {
  Model model;
  Layer layer;
  layer.in = 2;
  layer.out = 3;
  model.layers = {layer};
  return model;
}

template <class T>
NamedArray named(const std::string& file, const std::vector<std::int64_t>& shape,
                 const std::vector<T>& elements) {
  return {file, parse_npy(npy_bytes(shape, std::span<const T>(elements)), file)};
}

/// Sample i is (i, -i) with the label i % 3.
TrainingArrays arrays() {
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  for (int i = 0; i < kSamples; ++i) {
    inputs.push_back(static_cast<float>(i));
    inputs.push_back(static_cast<float>(-i));
    labels.push_back(i % 3);
  }
  return {named("x.npy", {kSamples, 2}, inputs), named("y.npy", {kSamples}, labels), {}};
}

/// The numbers of the samples of some steps, one after another.
std::vector<int> samples_of(const DataSource& data, int steps, int micro_batches) {
  std::vector<int> numbers;
  for (int step = 0; step < steps; ++step) {
    for (int m = 0; m < micro_batches; ++m) {
      const MicroBatch batch = data.micro_batch(step, m);
      for (std::size_t s = 0; s < batch.labels.size(); ++s) {
        const int number = static_cast<int>(batch.inputs[2 * s]);
        EXPECT_EQ(batch.inputs[2 * s + 1], static_cast<float>(-number));
        EXPECT_EQ(batch.labels[s], number % 3);
        numbers.push_back(number);
      }
    }
  }
  return numbers;
}

TEST(Shuffled, IsAOneToOneMapForEveryLength) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 63, 64, 65, 1000}) {
    std::set<std::uint64_t> places;
    for (std::uint64_t i = 0; i < n; ++i) places.insert(shuffled(key_of(7, n), i, n));
    EXPECT_EQ(places.size(), n);
    EXPECT_LT(*places.rbegin(), n);
  }
  EXPECT_LT(shuffled(1, 5, std::uint64_t{1} << 63), std::uint64_t{1} << 63);
}

TEST(ArraySource, EveryEpochHoldsEachSampleOnceInAnOrderOfItsOwn) {
  const auto data = array_source(classifier(), {2, 4, 5}, arrays());
  const std::vector<int> two_epochs = samples_of(*data, 6, 4);
  const std::vector<int> first(two_epochs.begin(), two_epochs.begin() + kSamples);
  const std::vector<int> second(two_epochs.begin() + kSamples, two_epochs.end());
  EXPECT_NE(first, second);
  std::vector<int> all(kSamples);
  std::iota(all.begin(), all.end(), 0);
  for (std::vector<int> epoch : {first, second}) {
    EXPECT_NE(epoch, all);
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, all);
  }
}

TEST(ArraySource, TheCutIntoMicroBatchesAndReplicasChangesNoSample) {
  const auto whole = array_source(classifier(), {8, 1, 5}, arrays());
  const auto halves = array_source(classifier(), {4, 2, 5}, arrays());
  const auto replicas = array_source(classifier(), {1, 8, 5}, arrays());  // dp 2 times 4
  const std::vector<int> expected = samples_of(*whole, 7, 1);
  EXPECT_EQ(samples_of(*halves, 7, 2), expected);
  EXPECT_EQ(samples_of(*replicas, 7, 8), expected);
  const auto other_seed = array_source(classifier(), {8, 1, 6}, arrays());
  EXPECT_NE(samples_of(*other_seed, 7, 1), expected);
}

TEST(ArraySource, WithoutShufflingSamplesComeAsTheyStand) {
  const auto data = array_source(classifier(), {5, 1, 1, false}, arrays());
  std::vector<int> expected;
  for (int i = 0; i < 50; ++i) expected.push_back(i % static_cast<int>(kSamples));
  EXPECT_EQ(samples_of(*data, 10, 1), expected);
}

TEST(ArraySource, BytesAreScaledAndTokensAreNot) {
  NpyArray bytes;
  bytes.type = NpyType::UInt8;
  bytes.shape = {1, 2};
  bytes.data = std::string("\x00\xff", 2);
  const auto data = array_source(classifier(), {1, 1, 1},
                                 {{"x.npy", bytes}, named<std::int32_t>("y.npy", {1}, {2}), {}});
  EXPECT_EQ(data->micro_batch(0, 0).inputs, (std::vector<float>{0, 1}));

  Model model = model_preset("gpt-tiny");
  model.sequence = 2;
  const auto text = array_source(
      model, {1, 1, 1}, {{"x.npy", bytes}, named<std::int32_t>("y.npy", {1, 2}, {3, 4}), {}});
  EXPECT_EQ(text->micro_batch(0, 0).tokens, (std::vector<std::int32_t>{0, 255}));
}

TEST(ArraySource, TargetsBelongToTheLossMse) {
  Model model = classifier();
  model.loss = LossKind::Mse;
  TrainingArrays given{
      arrays().inputs, {}, named("t.npy", {kSamples, 3}, std::vector<float>(72, 4))};
  EXPECT_EQ(array_source(model, {1, 1, 1}, given)->micro_batch(3, 0).targets,
            (std::vector<float>{4, 4, 4}));
  EXPECT_EQ(refusal([&] { array_source(classifier(), {1, 1, 1}, given); }).file(), "t.npy");
  EXPECT_EQ(refusal([&] { array_source(model, {1, 1, 1}, arrays()); }).file(), "y.npy");
}

TEST(ArraySource, WhatDoesNotFitIsRefusedWithItsFile) {
  const auto file_at_fault = [](const Model& model, TrainingArrays given) {
    const InputError error = refusal([&] { array_source(model, {1, 1, 1}, std::move(given)); });
    expect_one_line(error);
    return error.file();
  };
  const NamedArray x = arrays().inputs;
  const auto labels = [](std::int64_t n, std::int32_t label) {
    return named("y.npy", {n}, std::vector<std::int32_t>(static_cast<std::size_t>(n), label));
  };
  EXPECT_EQ(file_at_fault(classifier(), {x, labels(kSamples - 1, 0), {}}), "y.npy");
  EXPECT_EQ(file_at_fault(classifier(), {x, labels(kSamples, 3), {}}), "y.npy");
  EXPECT_EQ(file_at_fault(classifier(), {x, labels(kSamples, -1), {}}), "y.npy");
  EXPECT_EQ(file_at_fault(classifier(), {x, x, {}}), "x.npy");  // fractions as labels, too wide
  EXPECT_EQ(file_at_fault(classifier(), {x, {}, {}}), "x.npy");
  EXPECT_EQ(file_at_fault(classifier(), {named<float>("x.npy", {0, 2}, {}), labels(0, 0), {}}),
            "x.npy");
  EXPECT_EQ(
      file_at_fault(classifier(), {named<float>("x.npy", {1, 3}, {1, 2, 3}), labels(1, 0), {}}),
      "x.npy");
  EXPECT_EQ(file_at_fault(model_preset("gpt-tiny"), {x, labels(kSamples, 0), {}}), "x.npy");
  EXPECT_NO_THROW(array_source(classifier(), {1, 1, 1, true, false}, {x, {}, {}}));
}

TEST(ArraySource, AByteFileHasNoLabelsBesideIt) {
  EXPECT_THROW(make_data(classifier(), {1, 1, 1}, DataFiles{"", "y.npy", ""}), InputError);
  EXPECT_THROW(make_data(classifier(), {1, 1, 1}, DataFiles{"/no/such.npy", "", ""}), InputError);
}

}  // namespace array_data_test
}  // namespace pipewright::exec
