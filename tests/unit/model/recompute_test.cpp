// Recompute: which layers a spec means, and what a stage that recomputes keeps.
#include "core/model/recompute.hpp"

#include <gtest/gtest.h>

#include "exec/data/data.hpp"
#include "exec/devices/cpu/stage.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace recompute_test {

using Kind = RecomputeSpec::Kind;
using exec::cpu::Stage;

std::vector<LayerRecompute> layers_of(const char* text) {
  const Json value = Json::parse(text);
  const RecomputeSpec spec = read_recompute(JsonCursor(value, "plan.json", "/training/recompute"));
  EXPECT_EQ(to_json(spec), value);
  return recompute_of(model_preset("gpt-tiny"), spec);
}

TEST(Recompute, MeansTheLayersThatItNames) {
  constexpr auto kNone = LayerRecompute::None, kWhole = LayerRecompute::Whole;
  const std::size_t count = model_preset("gpt-tiny").layers.size();
  EXPECT_EQ(layers_of("\"none\""), std::vector(count, kNone));
  EXPECT_EQ(layers_of("\"full\""), std::vector(count, kWhole));
  EXPECT_EQ(layers_of("\"selective\""), std::vector(count, LayerRecompute::Attention));
  std::vector<LayerRecompute> some(count, kNone);
  EXPECT_EQ(layers_of("[]"), some);
  some[0] = some[2] = kWhole;
  const std::string name = model_preset("gpt-tiny").layers[2].name;
  EXPECT_EQ(layers_of(("[0,\"" + name + "\"]").c_str()), some);
  some[1] = LayerRecompute::Attention;
  EXPECT_EQ(layers_of(R"({"full": [0, 2], "selective": [1]})"), some);
}

TEST(Recompute, RefusesALayerThatIsNotThereAtItsPlace) {
  const auto refused = [](const char* text) {
    const Json training = Json::parse(text);
    const InputError error = test::refusal([&] {
      require_recompute_fits(JsonCursor(training, "job.json", "/training"),
                             model_preset("gpt-tiny"));
    });
    test::expect_one_line(error);
    EXPECT_EQ(error.file(), "job.json");
    EXPECT_EQ(error.pointer().find("/training/recompute"), 0U) << error.pointer();
  };
  refused(R"({"recompute": ["nowhere"]})");
  refused(R"({"recompute": [99]})");
  refused(R"({"recompute": "ful"})");
  refused(R"({"recompute": true})");
  refused(R"({"recompute": {"full": [0]}})");
  refused(R"({"recompute": {"full": [0], "selective": [0]}})");
  refused(R"({"recompute": {"full": [], "selective": [99]}})");
  refused(R"({"recompute": {"selective": [1], "none": [2]}})");
}

/// The most bytes of a stage of gpt-tiny's first three layers with four micro-batches under way,
/// and those between the last F and the first I.
struct Bytes4 {
  std::int64_t peak = 0, waiting = 0;
};
Bytes4 bytes_of(Kind kind, const std::vector<std::variant<int, std::string>>& layers = {}) {
  const Model model = model_preset("gpt-tiny");
  constexpr int kMicroBatches = 4;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i % 7);
  const auto data = exec::text_source(model, {2, kMicroBatches, 1}, text, "text");
  Stage stage(model, 0, 3, 2, kMicroBatches, 1, {},
              {.recompute = recompute_of(model, {kind, layers})});
  for (int m = 0; m < kMicroBatches; ++m) {
    stage.set_batch(m, data->micro_batch(0, m));
    stage.forward(m, {});
  }
  Bytes4 bytes;
  bytes.waiting = stage.live_activation_bytes();
  for (int m = 0; m < kMicroBatches; ++m) {
    stage.backward_input(m, std::vector<float>(stage.output_floats(), 0.1F));
    stage.backward_weight(m);
  }
  EXPECT_EQ(stage.live_activation_bytes(), 0);
  bytes.peak = stage.peak_activation_bytes();
  return bytes;
}

TEST(Recompute, AFullyRecomputedStageKeepsItsInputsOnly) {
  const Bytes4 none = bytes_of(Kind::None), full = bytes_of(Kind::Full);
  const Model model = model_preset("gpt-tiny");
  // Token ids of two sequences, four bytes each, of four micro-batches.
  EXPECT_EQ(full.waiting, std::int64_t{4} * 2 * model.sequence * 4);
  EXPECT_LT(full.peak, none.peak / 2);
}

TEST(Recompute, SelectiveKeepsNeitherProbabilitiesNorWhatIsMadeOfThem) {
  const Bytes4 none = bytes_of(Kind::None), selective = bytes_of(Kind::Selective);
  const Model model = model_preset("gpt-tiny");
  const std::int64_t rows = std::int64_t{2} * model.sequence;
  const std::int64_t probabilities = rows * model.sequence * 4;  // four heads
  const std::int64_t context = rows * model.layers[1].out;
  // Two blocks, four micro-batches.
  EXPECT_EQ(none.waiting - selective.waiting, 2 * 4 * (probabilities + context) * 4);
  EXPECT_LT(selective.peak, none.peak);
}

TEST(Recompute, ListedLayersKeepLessThanAllAndMoreThanNone) {
  const Bytes4 none = bytes_of(Kind::None), full = bytes_of(Kind::Full),
               listed = bytes_of(Kind::Listed, {1});
  EXPECT_LT(listed.waiting, none.waiting);
  EXPECT_GT(listed.waiting, full.waiting);
  EXPECT_LT(listed.peak, none.peak);
}

}  // namespace recompute_test
}  // namespace pipewright
