// Mixtures of experts: whom the router chooses and whom it drops, in cases whose answer is known,
// and the whole layer against a slow and obvious version in double: F by value, I and W against
// central differences of it, with the router's own losses.
#include "exec/layers/mixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/model/experts.hpp"
#include "core/model/model.hpp"
#include "exec/devices/cpu/host_ops.hpp"
#include "exec/devices/cpu/kernels/logarithm.hpp"
#include "exec/layers/expert_ops.hpp"
#include "exec/layers/parameters.hpp"
#include "tests/unit/numeric.hpp"
#include "tests/unit/trained_layer.hpp"

namespace pipewright::exec {
namespace mixture_test {

using test::Doubles;
using test::expect_close;
using test::Floats;
using test::random_floats;
using test::widened;

constexpr double kTolerance = 2e-5;

std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

/// What a router makes of logits.
struct Routed {
  Routed(const RouterShape& of, const Floats& logits, const Floats& bias = {})
      : shape(of),
        words(route_words(of), 77),
        routes(routes_in(of, words.data())),
        weights(of.pairs(), NAN) {
    Floats scratch(of.scratch());
    route(of, logits.data(), bias.empty() ? nullptr : bias.data(), weights.data(), routes,
          scratch.data());
    if (of.place.parts() == 1) place_rows(of, nullptr, routes);
  }

  std::vector<int> experts() const { return {routes.expert, routes.expert + shape.pairs()}; }
  std::vector<int> places() const { return {routes.place, routes.place + shape.pairs()}; }
  std::vector<int> rows() const { return {routes.row, routes.row + shape.pairs()}; }
  std::vector<int> begins() const {
    return {routes.begin, routes.begin + shape.choice.experts + 1};
  }

  RouterShape shape;
  std::vector<std::int32_t> words;
  Routes routes;
  Floats weights;
};

TEST(Router, TakesTheLargestAndOfEqualOnesTheLowerNumber) {
  const Routed routed({3, {.experts = 4, .top_k = 2}}, {0, 3, 1, 2,  //
                                                        5, 1, 5, 5,  //
                                                        2, 2, 2, 2});
  EXPECT_EQ(routed.experts(), (std::vector<int>{1, 3, 0, 2, 0, 1})) << "ascending in a row";
  const double one = 1 / (1 + std::exp(-1.0));
  expect_close(routed.weights, {one, 1 - one, 0.5, 0.5, 0.5, 0.5}, 1e-6, "weights");
  EXPECT_EQ(routed.begins(), (std::vector<int>{0, 2, 4, 5, 6}));
  EXPECT_EQ(routed.rows(), (std::vector<int>{1, 2, 0, 2, 1, 0})) << "in the order of rows";
  EXPECT_EQ(routed.places(), (std::vector<int>{2, 5, 0, 4, 1, 3}));
}

TEST(Router, WeightsThatAreNotNormalisedAreTheSoftmaxOverAllExperts) {
  const Routed routed({1, {.experts = 3, .top_k = 2, .normalises = false}},
                      {std::log(1.0F), std::log(2.0F), std::log(5.0F)});
  EXPECT_EQ(routed.experts(), (std::vector<int>{1, 2}));
  expect_close(routed.weights, {2.0 / 8, 5.0 / 8}, 1e-6, "weights");
}

/// As in DeepSeek-V3 (arXiv 2412.19437 §2.1.2).
TEST(Router, SigmoidsAreNormalisedOverTheChosenAndScaled) {
  // Sigmoids of 1/4, 3/4, 1/2.
  const Floats logits{-std::log(3.0F), std::log(3.0F), 0};
  const ExpertChoice choice{
      .experts = 3, .top_k = 2, .scores = RouterScores::Sigmoid, .scaling = 2.5};
  const Routed routed({1, choice}, logits);
  EXPECT_EQ(routed.experts(), (std::vector<int>{1, 2}));
  expect_close(routed.weights, {2.5 * 0.6, 2.5 * 0.4}, 1e-6, "weights");
  const Routed moved({1, choice}, logits, {0.3F, 0, 0});
  EXPECT_EQ(moved.experts(), (std::vector<int>{0, 1})) << "a bias decides who is chosen";
  expect_close(moved.weights, {2.5 * 0.25, 2.5 * 0.75}, 1e-6, "and has no part in the weights");
}

TEST(Router, ARowsExpertsAreInTheGroupsWithTheBestTwo) {
  // By twos: 5 + 0, 3 + 3, 4 + 1, 2 + 2; the best two groups are the second and, of two equal
  // ones, the first.
  const Floats logits{5, 0, 3, 3, 4, 1, 2, 2};
  Floats scores;
  for (const float one : logits) scores.push_back(std::log(one / 10 / (1 - one / 10)));
  const Routed routed({1,
                       {.experts = 8,
                        .top_k = 3,
                        .scores = RouterScores::Sigmoid,
                        .normalises = false,
                        .groups = 4,
                        .top_groups = 2}},
                      scores);
  EXPECT_EQ(routed.experts(), (std::vector<int>{0, 2, 3})) << "and not 4, whose group is out";
  expect_close(routed.weights, {0.5, 0.3, 0.3}, 1e-6, "weights");
}

TEST(Router, AnExpertThatIsFullDropsTheRowsThatComeLast) {
  // 5 rows of 2 experts each among 3, so 10/3 an expert; 0.8 of that is 2.67, hence 3.
  const ExpertChoice choice{.experts = 3, .top_k = 2, .capacity_factor = 0.8};
  EXPECT_EQ(expert_capacity(choice, 5), 3);
  const Routed routed({5, choice}, {9, 8, 0,  //
                                    9, 8, 0,  //
                                    9, 0, 8,  //
                                    9, 8, 0,  //
                                    0, 9, 8});
  EXPECT_EQ(routed.places(), (std::vector<int>{0, 3, 1, 4, 2, 6, -1, 5, -1, 7}));
  EXPECT_EQ(routed.begins(), (std::vector<int>{0, 3, 6, 8}));
  EXPECT_EQ(routed.rows(), (std::vector<int>{0, 1, 2, 0, 1, 3, 2, 4, -1, -1}));
  const double larger = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(routed.weights[7], 1 - larger, 1e-6) << "what is left is not made larger";
}

TEST(Router, CapacityIsRoundedUpAndNeverMoreThanAllRows) {
  EXPECT_EQ(expert_capacity({.experts = 8, .top_k = 2}, 100), 100) << "nothing is dropped";
  EXPECT_EQ(expert_capacity({.experts = 8, .top_k = 2, .capacity_factor = 1}, 100), 25);
  EXPECT_EQ(expert_capacity({.experts = 8, .top_k = 2, .capacity_factor = 1.25}, 100), 32);
  EXPECT_EQ(expert_capacity({.experts = 8, .top_k = 2, .capacity_factor = 9}, 100), 100);
}

/// Of two samples of eight rows each those of a rank, of four, and how often the ranks chose.
TEST(Router, RanksWithPartsOfSequencesDropWhomASingleOneDrops) {
  constexpr int kRanks = 4, kExperts = 3, kSequence = 8, kAll = 2 * kSequence;
  const ExpertChoice choice{.experts = kExperts, .top_k = 2, .capacity_factor = 0.7};
  const Floats logits = random_floats(kAll * kExperts, 5);
  const Routed whole({kAll, choice}, logits);
  ASSERT_EQ(std::count(whole.routes.place, whole.routes.place + 2 * kAll, Routes::kDropped), 8);
  std::vector<Routed> ranks;
  Floats counts;
  for (int r = 0; r < kRanks; ++r) {
    const ContextPlace place{r, kRanks};
    const RouterShape shape{
        kAll / kRanks, choice, {.samples = 2, .sequence = kSequence / kRanks, .context = place}};
    Floats own;
    for (int i = 0; i < shape.rows; ++i) {
      const auto row = row_of_all(place, kSequence / kRanks, i);
      own.insert(own.end(), logits.begin() + row * kExperts, logits.begin() + (row + 1) * kExperts);
    }
    Floats of_chunks(index_of(shape.runs()));
    ranks.emplace_back(shape, own);
    count_choices_of_chunks(shape, ranks.back().routes, of_chunks.data());
    counts.insert(counts.end(), of_chunks.begin(), of_chunks.end());
  }
  Floats expected(kExperts, 0);
  count_choices(whole.shape, whole.routes, expected.data());
  for (Routed& rank : ranks) {
    Floats earlier(index_of(rank.shape.runs())), all(kExperts), own(kExperts), chosen(kExperts);
    sum_choices(rank.shape, counts.data(), {earlier.data(), all.data(), own.data()});
    EXPECT_EQ(all, expected);
    count_choices(rank.shape, rank.routes, chosen.data());
    EXPECT_EQ(own, chosen) << "there is no other rank of its place along cp";
    place_rows(rank.shape, earlier.data(), rank.routes);
    for (int i = 0; i < rank.shape.rows; ++i) {
      const auto row = row_of_all(rank.shape.place.context, kSequence / kRanks, i);
      for (int k = 0; k < 2; ++k) {
        const int place = rank.routes.place[2 * i + k];
        EXPECT_EQ(place == Routes::kDropped, whole.routes.place[2 * row + k] == Routes::kDropped);
        if (place == Routes::kDropped) continue;
        EXPECT_EQ(rank.routes.row[place], i);
        const std::int32_t* run = rank.routes.begin + rank.routes.expert[2 * i + k] * 4 + i;
        EXPECT_EQ(place, run[0]) << "a chunk is a row, of each sample two";
      }
    }
  }
}

/// With equal logits P is 1/E for all, and ties send every row to the first top_k experts.
TEST(Router, ItsOwnLossesHaveTheirGradients) {
  constexpr int kRows = 3, kExperts = 4;
  const ExpertChoice choice{.experts = kExperts, .top_k = 2, .balance_loss = 0.5, .z_loss = 0.25};
  const Floats logits(kRows * kExperts, 0);
  const Routed routed({kRows, choice}, logits);
  Floats dlogits(logits.size(), NAN), scratch(routed.shape.scratch());
  const Floats none(routed.weights.size(), 0);
  const double share = 0.125;
  route_backward(routed.shape, share, logits.data(), routed.weights.data(), routed.routes, nullptr,
                 none.data(), dlogits.data(), scratch.data());
  Doubles expected;
  for (int i = 0; i < kRows * kExperts; ++i) {
    const double f = i % kExperts < 2 ? 0.5 : 0;
    const double balance = 0.5 / kRows * (f - 1.0 / kExperts);
    const double z = 2 * 0.25 / kRows * std::log(kExperts) / kExperts;
    expected.push_back(share * (balance + z));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(dlogits[i], expected[i], 1e-7);
}

/// Of the sums of exponentials that a router's loss of large logits takes, and of any other number.
TEST(Logarithm, IsWithinAFloatsLastBits) {
  for (float x = std::numeric_limits<float>::min(); x < 1e38F; x *= 1.0371F) {
    const double exact = std::log(static_cast<double>(x));
    EXPECT_NEAR(cpu::log_of_normal(x), exact, 1.2e-7 * std::max(1.0, std::fabs(exact))) << x;
  }
  EXPECT_EQ(cpu::log_of_normal(1), 0);
  EXPECT_TRUE(std::isnan(cpu::log_of_normal(NAN)));
}

/// Two rows: the first two experts have them all.
TEST(Router, TheBiasMovesTowardsExpertsThatWereChosenLess) {
  const Json json = parse_json(R"({"schema": "pipewright.model/1", "loss": "mse", "layers": [
      {"kind": "mixture_of_experts", "in": 2, "experts": 4, "top_k": 2, "scoring": "sigmoid",
       "balance_rate": 0.125, "layers": [{"kind": "linear", "out": 2}]}]})",
                               "model");
  const Layer layer = read_model(JsonCursor(json, "model")).layers.front();
  BufferPool pool;
  cpu::HostOps ops(pool, Numerics::Fast);
  const auto made = make_layer(layer, {.extent = {1, 2}, .ops = &ops, .path = "0", .width = 2});
  std::vector<Parameter*> parameters;
  made->collect(parameters);
  for (Parameter* one : parameters) {
    allocate(*one, 1);
    if (one->name == "0/router_weight") std::fill(one->value.begin(), one->value.end(), 0.0F);
  }
  Saved saved = made->new_saved();
  Buffer x = ops.take(4), dy = ops.take(4);
  std::fill_n(x.floats(), 4, 1.0F);
  std::fill_n(dy.floats(), 4, 1.0F);
  run_now(made->forward(std::move(x), saved));
  run_now(made->backward_input(std::move(dy), saved, true));
  run_now(made->backward_weight(saved));
  const Parameter& bias = *parameters[1];
  ASSERT_EQ(bias.name, "0/balance_bias");
  EXPECT_TRUE(bias.is_statistic);
  EXPECT_EQ(Floats(bias.gradient.begin(), bias.gradient.end()), (Floats{2, 2, 0, 0}));
  made->update_statistics();
  EXPECT_EQ(Floats(bias.value.begin(), bias.value.end()),
            (Floats{-0.125F, -0.125F, 0.125F, 0.125F}));
}

TEST(RowsOfExperts, AreBoundedByWhoCanBeChosenAndByTheCapacity) {
  ExpertChoice choice{.experts = 8, .top_k = 2};
  EXPECT_EQ(most_rows(choice, 10, 1), 10) << "a row chooses an expert once";
  EXPECT_EQ(most_rows(choice, 10, 2), 20);
  EXPECT_EQ(most_rows(choice, 10, 8), 20) << "all choices";
  EXPECT_EQ(even_rows(choice, 10), 20);
  choice.capacity_factor = 1.2;  // of an even share of 2.5: 3 rows
  EXPECT_EQ(most_rows(choice, 10, 2), 6);
  EXPECT_EQ(most_rows(choice, 10, 8), 20);
}

// --- The whole layer -----------------------------------------------------------------------------

constexpr int kWidth = 5, kOut = 4, kSamples = 2, kSequence = 7, kRows = kSamples * kSequence;
constexpr int kInner = 3;  // in an expert, behind the activation
constexpr double kShare = 0.25;

struct LayerCase {
  const char* name;
  ExpertChoice choice;
  const char* activation;  // of the experts
  bool bias = false;       // of router and experts
  bool shared = false;
};

Layer layer_of(const LayerCase& c) {
  const bool halves = std::string(c.activation) == "swiglu";
  const Json up = {{"kind", "linear"}, {"out", halves ? 2 * kInner : kInner}, {"bias", c.bias}};
  const Json down = {{"kind", "linear"}, {"out", kOut}, {"bias", c.bias}};
  Json json = {{"kind", "mixture_of_experts"},
               {"in", kWidth},
               {"router_bias", c.bias},
               {"layers", {up, {{"kind", c.activation}}, down}}};
  if (c.shared) json["shared"] = {{{"kind", "linear"}, {"out", kOut}}};
  write_expert_choice(c.choice, json);
  const Json model = {{"schema", "pipewright.model/1"}, {"layers", {json}}, {"loss", "mse"}};
  return read_model(JsonCursor(model, "model")).layers.front();
}

double activated(const std::string& kind, const double* row, int width, int j) {
  if (kind == "relu") return std::max(0.0, row[j]);
  if (kind == "swiglu") return row[j] / (1 + std::exp(-row[j])) * row[width + j];
  const double v = row[j];
  return v / 2 * (1 + std::tanh(0.7978845608 * (v + 0.044715 * v * v * v)));
}

/// y = x · w[in][out] + b; b may be null.
Doubles times(const double* x, const double* w, const double* b, int in, int out) {
  Doubles y(static_cast<std::size_t>(out), 0);
  for (int j = 0; j < out; ++j) {
    for (int i = 0; i < in; ++i) y[static_cast<std::size_t>(j)] += x[i] * w[i * out + j];
    if (b != nullptr) y[static_cast<std::size_t>(j)] += b[j];
  }
  return y;
}

/// The arrays of the layer, as it collects them; null where it has none.
struct Arrays {
  Arrays(const LayerCase& c, int up_width, const double* at) {
    const int experts = c.choice.experts;
    const auto next = [&at](bool is_there, int size) {
      return is_there ? std::exchange(at, at + size) : nullptr;
    };
    router = next(true, kWidth * experts);
    router_bias = next(c.bias, experts);
    up = next(true, experts * kWidth * up_width);
    up_bias = next(c.bias, experts * up_width);
    down = next(true, experts * kInner * kOut);
    down_bias = next(c.bias, experts * kOut);
    shared = next(c.shared, kWidth * kOut);
    shared_bias = next(c.shared, kOut);
  }

  const double *router, *router_bias, *up, *up_bias, *down, *down_bias, *shared, *shared_bias;
};

/// From the input and the arrays of the layer, one after another.
class Reference {
 public:
  Reference(const LayerCase& c, const Doubles& all)
      : c_(c),
        choice_(c.choice),
        kind_(c.activation),
        up_width_(kind_ == "swiglu" ? 2 * kInner : kInner),
        arrays_(c, up_width_, all.data() + kRows * kWidth),
        taken_(index(choice_.experts), 0),
        f_(taken_),
        mean_(taken_) {
    for (int r = 0; r < kRows; ++r) add_row(all.data() + r * kWidth);
  }

  const Doubles& outputs() const { return y_; }
  /// The router's own.
  double losses() const {
    double balance = 0;
    for (std::size_t e = 0; e < f_.size(); ++e) balance += f_[e] * mean_[e];
    return choice_.balance_loss * choice_.experts * balance + choice_.z_loss * squares_ / kRows;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  void add_row(const double* x) {
    const Doubles p = scores(x);
    std::vector<int> order = ordered(p);
    order.resize(index(choice_.top_k));
    double chosen = 0;
    for (const int e : order) chosen += p[index(e)];
    Doubles row(kOut, 0);
    if (c_.shared) row = times(x, arrays_.shared, arrays_.shared_bias, kWidth, kOut);
    const double capacity =
        choice_.capacity_factor > 0
            ? std::ceil(choice_.capacity_factor * kRows * choice_.top_k / choice_.experts)
            : kRows;
    for (const int e : order) {
      f_[index(e)] += 1.0 / (kRows * choice_.top_k);
      if (taken_[index(e)]++ >= capacity) continue;
      const Doubles z = expert(e, x);
      const double weight = choice_.scaling * p[index(e)] / (choice_.normalises ? chosen : 1);
      for (std::size_t j = 0; j < kOut; ++j) row[j] += weight * z[j];
    }
    y_.insert(y_.end(), row.begin(), row.end());
  }

  /// The softmax of the row's logits, or their sigmoids.
  Doubles scores(const double* x) {
    Doubles u = times(x, arrays_.router, arrays_.router_bias, kWidth, choice_.experts);
    double exponentials = 0, sum = 0;
    for (const double one : u) exponentials += std::exp(one);
    squares_ += std::log(exponentials) * std::log(exponentials);
    for (double& one : u) {
      one = choice_.scores == RouterScores::Softmax ? std::exp(one) / exponentials
                                                    : 1 / (1 + std::exp(-one));
      sum += one;
    }
    for (std::size_t e = 0; e < u.size(); ++e) mean_[e] += u[e] / sum / kRows;
    return u;
  }

  /// By how good they are; of several groups those in the best alone.
  std::vector<int> ordered(const Doubles& u) const {
    std::vector<int> order(u.size()), groups(index(choice_.groups));
    std::iota(order.begin(), order.end(), 0);
    std::iota(groups.begin(), groups.end(), 0);
    const auto better = [&](int a, int b) { return u[index(a)] > u[index(b)]; };
    std::stable_sort(order.begin(), order.end(), better);
    if (choice_.groups == 1) return order;
    const int each = choice_.experts / choice_.groups;
    std::vector<std::vector<int>> of_group(groups.size());
    for (const int e : order) of_group[index(e / each)].push_back(e);
    const auto two = [&](int g) {
      return u[index(of_group[index(g)][0])] + u[index(of_group[index(g)][1])];
    };
    std::stable_sort(groups.begin(), groups.end(), [&](int a, int b) { return two(a) > two(b); });
    groups.resize(index(choice_.top_groups));
    std::erase_if(order, [&](int e) {
      return std::find(groups.begin(), groups.end(), e / each) == groups.end();
    });
    return order;
  }

  Doubles expert(int e, const double* x) const {
    const auto of_bias = [&](const double* biases, int width) {
      return biases == nullptr ? nullptr : biases + e * width;
    };
    const Doubles inner = times(x, arrays_.up + e * kWidth * up_width_,
                                of_bias(arrays_.up_bias, up_width_), kWidth, up_width_);
    Doubles hidden;
    for (int j = 0; j < kInner; ++j) hidden.push_back(activated(kind_, inner.data(), kInner, j));
    return times(hidden.data(), arrays_.down + e * kInner * kOut, of_bias(arrays_.down_bias, kOut),
                 kInner, kOut);
  }

  const LayerCase& c_;
  const ExpertChoice choice_;
  const std::string kind_;
  const int up_width_;
  const Arrays arrays_;
  std::vector<double> taken_, f_, mean_;  // by expert
  double squares_ = 0;
  Doubles y_;
};

class MixtureLayers : public testing::TestWithParam<LayerCase> {};

TEST_P(MixtureLayers, AgreeWithTheReference) {
  const Layer layer = layer_of(GetParam());
  BufferPool pool;
  cpu::HostOps ops(pool, Numerics::Fast);
  const auto made = make_layer(
      layer, {.extent = {kSamples, kSequence}, .ops = &ops, .path = "0", .width = kWidth});
  made->set_loss_share(kShare);
  const Floats dy = random_floats(kRows * kOut, 99);
  const test::TrainedLayer trained = test::train_once(*made, ops, kRows * kWidth, dy);
  expect_close(trained.y, Reference(GetParam(), widened(trained.at)).outputs(), kTolerance, "F");
  const auto minimised = [&](const Doubles& at) {
    const Reference reference(GetParam(), at);
    double sum = kShare * reference.losses();
    for (std::size_t i = 0; i < dy.size(); ++i)
      sum += reference.outputs()[i] * static_cast<double>(dy[i]);
    return Doubles{sum};
  };
  test::expect_gradients(trained, minimised, {1.0F}, 5e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MixtureLayers,
    testing::Values(
        LayerCase{"mixtral", {.experts = 4, .top_k = 2}, "swiglu"},
        LayerCase{
            "losses", {.experts = 4, .top_k = 2, .balance_loss = 0.7, .z_loss = 0.3}, "swiglu"},
        LayerCase{"notNormalised",
                  {.experts = 3, .top_k = 2, .normalises = false, .balance_loss = 0.7},
                  "gelu",
                  true},
        LayerCase{"switchWithDrops",
                  {.experts = 3, .top_k = 1, .normalises = false, .capacity_factor = 0.75},
                  "relu",
                  true},
        LayerCase{"dropsAndShared",
                  {.experts = 5, .top_k = 3, .capacity_factor = 0.6, .z_loss = 0.1},
                  "swiglu",
                  true,
                  true},
        LayerCase{"deepseek",
                  {.experts = 8,
                   .top_k = 3,
                   .scores = RouterScores::Sigmoid,
                   .scaling = 2.5,
                   .groups = 4,
                   .top_groups = 2,
                   .balance_loss = 0.7,
                   .z_loss = 0.3},
                  "swiglu",
                  false,
                  true},
        LayerCase{"sigmoidAsItIs",
                  {.experts = 4,
                   .top_k = 2,
                   .scores = RouterScores::Sigmoid,
                   .normalises = false,
                   .scaling = 0.5,
                   .capacity_factor = 0.9},
                  "gelu"},
        LayerCase{"oneExpert", {.experts = 1, .top_k = 1}, "gelu"},
        LayerCase{"allExperts", {.experts = 3, .top_k = 3, .balance_loss = 1}, "gelu", false, true},
        LayerCase{"moreExpertsThanRows", {.experts = 17, .top_k = 2}, "swiglu", true}),
    [](const auto& one) { return one.param.name; });

}  // namespace mixture_test
}  // namespace pipewright::exec
