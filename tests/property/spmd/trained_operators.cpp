#include "tests/property/spmd/trained_operators.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace pipewright::spmd::test {
namespace {

using Integers = std::vector<std::int64_t>;

TrainedCase of_one(const std::string& rule, const std::string& before, double (*value)(double),
                   std::vector<Attribute> attributes = {}) {
  return {{rule,
           {{4, 6}},
           {{4, 6}},
           std::move(attributes),
           [=](const Computation& c) {
             return filled(c, [&](const Shape& at) { return value(c.inputs[0].at(at)); });
           }},
          {before}};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double gelu(double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_by_tanh(double x) {
  return x / 2 * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

std::vector<TrainedCase> curves() {
  return {
      of_one("abs", "", std::abs),
      of_one("assign", "", [](double x) { return x; }),
      of_one("cast", "", [](double x) { return x; }),
      of_one("ceil", "", std::ceil),
      of_one("cos", "", std::cos),
      of_one("erf", "", std::erf),
      of_one("exp", "", std::exp),
      of_one("floor", "", std::floor),
      of_one("gelu", "", gelu),
      of_one("gelu", "", gelu_by_tanh, {true}),
      of_one("isnan", "", [](double x) { return std::isnan(x) ? 1.0 : 0.0; }),
      of_one("log", "scale", std::log),
      of_one("logical_not", "relu", [](double x) { return x == 0 ? 1.0 : 0.0; }),
      of_one("pow", "scale", [](double x) { return std::pow(x, -1.5); }, {-1.5}),
      of_one("relu", "", [](double x) { return std::max(0.0, x); }),
      of_one("rsqrt", "scale", [](double x) { return 1 / std::sqrt(x); }),
      of_one("scale", "", [](double x) { return 3 * x - 2; }, {3.0, -2.0}),
      of_one("sigmoid", "", sigmoid),
      of_one("silu", "", silu),
      of_one("sin", "", std::sin),
      of_one("sqrt", "scale", std::sqrt),
      of_one("square", "", [](double x) { return x * x; }),
      of_one("swish", "", silu),
      of_one("tanh", "", std::tanh),
  };
}

TrainedCase of_two(const std::string& rule, const std::string& before,
                   double (*value)(double, double), std::vector<Shape> inputs) {
  return {{rule,
           std::move(inputs),
           {{2, 4, 6}},
           {},
           [=](const Computation& c) {
             return filled(c, [&](const Shape& at) {
               return value(broadcast_at(c.inputs[0], at), broadcast_at(c.inputs[1], at));
             });
           }},
          {before, before}};
}

std::vector<TrainedCase> surfaces() {
  const std::vector<Shape> alike = {{2, 4, 6}, {2, 4, 6}}, row = {{2, 4, 6}, {6}};
  const std::vector<Shape> crossed = {{2, 1, 6}, {4, 1}};
  const auto plus = [](double x, double y) { return x + y; };
  const auto over = [](double x, double y) { return x / y; };
  return {
      of_two("add", "", plus, alike),
      of_two("add", "", plus, row),
      of_two("add", "", plus, crossed),
      of_two("divide", "scale", over, alike),
      of_two("divide", "scale", over, crossed),
      of_two(
          "elementwise_pow", "scale", [](double x, double y) { return std::pow(x, y); }, row),
      of_two(
          "maximum", "", [](double x, double y) { return std::max(x, y); }, alike),
      of_two(
          "minimum", "", [](double x, double y) { return std::min(x, y); }, row),
      of_two(
          "multiply", "", [](double x, double y) { return x * y; }, crossed),
      of_two(
          "subtract", "", [](double x, double y) { return x - y; }, crossed),
      of_two(
          "swiglu", "", [](double x, double y) { return silu(x) * y; }, alike),
  };
}

/// Of whole numbers, some of which are equal.
std::vector<TrainedCase> comparing() {
  const std::vector<Shape> row = {{2, 4, 6}, {6}};
  const auto of = [&](const char* rule, double (*value)(double, double)) {
    return of_two(rule, "floor", value, row);
  };
  return {
      of("equal", [](double x, double y) { return x == y ? 1.0 : 0.0; }),
      of("greater_equal", [](double x, double y) { return x >= y ? 1.0 : 0.0; }),
      of("greater_than", [](double x, double y) { return x > y ? 1.0 : 0.0; }),
      of("less_equal", [](double x, double y) { return x <= y ? 1.0 : 0.0; }),
      of("less_than", [](double x, double y) { return x < y ? 1.0 : 0.0; }),
      of("not_equal", [](double x, double y) { return x != y ? 1.0 : 0.0; }),
  };
}

std::vector<TrainedCase> of_more() {
  TrainedCase sum{{"add_n", {{4, 6}, {4, 6}, {4, 6}}, {{4, 6}}, {}, [](const Computation& c) {
                     return filled(c, [&](const Shape& at) {
                       return c.inputs[0].at(at) + c.inputs[1].at(at) + c.inputs[2].at(at);
                     });
                   }}};
  sum.one.inputs_are_a_list = true;
  const TrainedCase choice{{"where",
                            {{4, 6}, {4, 1}, {6}},
                            {{4, 6}},
                            {},
                            [](const Computation& c) {
                              return filled(c, [&](const Shape& at) {
                                const bool is_x = c.inputs[0].at(at) != 0;
                                return broadcast_at(c.inputs[is_x ? 1 : 2], at);
                              });
                            }},
                           {"relu"}};
  return {sum, choice};
}

TrainedCase softmax_along(std::int64_t axis) {
  return {{"softmax", {{4, 6, 2}}, {{4, 6, 2}}, {axis}, [=](const Computation& c) {
             return filled(c, [&](const Shape& at) {
               double sum = 0;
               Shape other = at;
               const auto dim = static_cast<std::size_t>(axis);
               for (other[dim] = 0; other[dim] < c.inputs[0].shape[dim]; ++other[dim]) {
                 sum += std::exp(c.inputs[0].at(other) - c.inputs[0].at(at));
               }
               return 1 / sum;
             });
           }}};
}

TrainedCase batched_product() {
  return {{"matmul", {{2, 4, 6}, {2, 6, 4}}, {{2, 4, 4}}, {}, [](const Computation& c) {
             return filled(c, [&](const Shape& at) {
               double sum = 0;
               for (std::int64_t k = 0; k < 6; ++k) {
                 sum += c.inputs[0].at({at[0], at[1], k}) * c.inputs[1].at({at[0], k, at[2]});
               }
               return sum;
             });
           }}};
}

/// Both transposed.
TrainedCase turned_product() {
  return {{"matmul", {{6, 4}, {2, 6}}, {{4, 2}}, {true, true}, [](const Computation& c) {
             return filled(c, [&](const Shape& at) {
               double sum = 0;
               for (std::int64_t k = 0; k < 6; ++k) {
                 sum += c.inputs[0].at({k, at[0]}) * c.inputs[1].at({at[1], k});
               }
               return sum;
             });
           }}};
}

/// softmax(q k' / sqrt(width) + mask) v of each head, keys in front of a query alone if `causal`.
std::vector<Array> attended_as_defined(const Computation& c, HeadAxes axes, bool causal,
                                       const Array* mask) {
  const Array &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2];
  const std::int64_t served = q.shape[axes.head] / k.shape[axes.head];
  const std::int64_t queries = q.shape[axes.token], keys = k.shape[axes.token];
  return filled(c, [&](const Shape& at) {
    double sum = 0, total = 0;
    for (std::int64_t key = 0; key < keys; ++key) {
      if (causal && key > at[axes.token] + keys - queries) continue;
      Shape left = at, right = at;
      right[axes.token] = key;
      right[axes.head] = at[axes.head] / served;
      const double value = v.at(right);
      double score = 0;
      for (left[3] = right[3] = 0; left[3] < q.shape[3]; ++left[3], ++right[3]) {
        score += q.at(left) * k.at(right) / std::sqrt(static_cast<double>(q.shape[3]));
      }
      if (mask != nullptr) {
        score += broadcast_at(*mask, {at[0], at[axes.head], at[axes.token], key});
      }
      sum += std::exp(score);
      total += std::exp(score) * value;
    }
    return total / sum;
  });
}

TrainedCase by_tokens(std::int64_t key_heads, bool causal, const Shape& mask) {
  const Shape q = {2, 3, 4, 2}, k = {2, 3, key_heads, 2};
  TrainedCase one{{"flash_attention",
                   {q, k, k, {}, mask},
                   {q},
                   {0.0, causal},
                   [=](const Computation& c) {
                     return attended_as_defined(c, {.head = 2, .token = 1}, causal,
                                                mask.empty() ? nullptr : &c.inputs[4]);
                   }},
                  {},
                  {"", "", "", "left out", mask.empty() ? "left out" : ""}};
  one.one.unheard = {2, 4};
  return one;
}

TrainedCase by_heads(std::int64_t key_heads, bool causal, const Shape& mask) {
  const Shape q = {2, 4, 3, 2}, k = {2, key_heads, 3, 2};
  TrainedCase one{{"scaled_dot_product_attention",
                   {q, k, k, mask},
                   {q},
                   {causal},
                   [=](const Computation& c) {
                     return attended_as_defined(c, {.head = 1, .token = 2}, causal,
                                                mask.empty() ? nullptr : &c.inputs[3]);
                   }},
                  {},
                  {"", "", "", mask.empty() ? "left out" : ""}};
  one.one.unheard = {2, 3};
  return one;
}

std::vector<TrainedCase> attending() {
  std::vector<TrainedCase> cases;
  for (const std::int64_t heads : {4, 2, 1}) {
    cases.push_back(by_tokens(heads, true, {}));
    cases.push_back(by_heads(heads, heads != 2, {}));
  }
  cases.push_back(by_tokens(4, false, {2, 4, 3, 3}));
  cases.push_back(by_heads(4, false, {2, 4, 3, 3}));
  cases.push_back(by_heads(2, false, {1, 1, 3, 3}));
  cases.push_back(by_heads(4, true, {3, 3}));
  return cases;
}

/// What operator_cases() has not.
std::vector<TrainedCase> arranging() {
  TrainedCase in_number{{"split_with_num",
                         {{4, 6}},
                         {{4, 3}, {4, 3}},
                         {std::int64_t{2}, std::int64_t{1}},
                         [](const Computation& c) {
                           std::vector<Array> parts = {zeros({4, 3}), zeros({4, 3})};
                           for_each_index({4, 3}, [&](const Shape& at) {
                             parts[0].at(at) = c.inputs[0].at(at);
                             parts[1].at(at) = c.inputs[0].at({at[0], at[1] + 3});
                           });
                           return parts;
                         }}};
  TrainedCase apart{
      {"unbind", {{4, 2, 6}}, {{4, 6}, {4, 6}}, {std::int64_t{1}}, [](const Computation& c) {
         std::vector<Array> parts = {zeros({4, 6}), zeros({4, 6})};
         for_each_index({4, 6}, [&](const Shape& at) {
           for (std::int64_t part = 0; part < 2; ++part) {
             parts[static_cast<std::size_t>(part)].at(at) = c.inputs[0].at({at[0], part, at[1]});
           }
         });
         return parts;
       }}};
  const TrainedCase lower{
      {"tril_triu", {{2, 4, 6}}, {{2, 4, 6}}, {std::int64_t{1}, true}, [](const Computation& c) {
         return filled(
             c, [&](const Shape& at) { return at[2] <= at[1] + 1 ? c.inputs[0].at(at) : 0; });
       }}};
  const TrainedCase from_end{
      {"slice",
       {{6, 4}},
       {{2, 4}},
       {Integers{0}, Integers{-3}, Integers{-1}},
       [](const Computation& c) {
         return filled(c, [&](const Shape& at) { return c.inputs[0].at({at[0] + 3, at[1]}); });
       }}};
  return {in_number, apart, lower, from_end};
}

/// A sum over the elements of a dimension that are in front of an element, or behind it.
TrainedCase running_sum(std::int64_t axis, bool exclusive, bool reverse) {
  return {{"cumsum",
           {{4, 6, 2}},
           {{4, 6, 2}},
           {axis, false, exclusive, reverse},
           [=](const Computation& c) {
             const auto dim = static_cast<std::size_t>(axis);
             return filled(c, [&](const Shape& at) {
               double sum = exclusive ? 0 : c.inputs[0].at(at);
               Shape other = at;
               for (other[dim] = 0; other[dim] < c.inputs[0].shape[dim]; ++other[dim]) {
                 const bool is_in = reverse ? other[dim] > at[dim] : other[dim] < at[dim];
                 if (is_in) sum += c.inputs[0].at(other);
               }
               return sum;
             });
           }}};
}

/// What operator_cases() has not: the smallest, along the first dimension; of all elements one; and
/// whole numbers, of which some are none of the classes.
std::vector<TrainedCase> routing() {
  const auto three_smallest = [](const Computation& c) {
    std::vector<Array> made = {zeros(c.outputs[0]), zeros(c.outputs[1])};
    for_each_index(c.inputs[0].shape, [&](const Shape& at) {
      Shape other = at, to = at;
      for (to[0] = other[0] = 0; other[0] < c.inputs[0].shape[0]; ++other[0]) {
        if (c.inputs[0].at(other) < c.inputs[0].at(at)) ++to[0];
      }
      if (to[0] >= c.outputs[0][0]) return;
      made[0].at(to) = c.inputs[0].at(at);
      made[1].at(to) = static_cast<double>(at[0]);
    });
    return made;
  };
  const auto largest_of_all = [](const Computation& c) {
    const std::vector<double>& values = c.inputs[0].values;
    const auto largest = std::max_element(values.begin(), values.end());
    Array place = zeros({1});
    place.values.front() = static_cast<double>(largest - values.begin());
    return std::vector<Array>{place};
  };
  const auto ones = [](const Computation& c) {
    return filled(c, [&](const Shape& at) {
      return c.inputs[0].at({at[0], at[1]}) == static_cast<double>(at[2]) ? 1.0 : 0.0;
    });
  };
  TrainedCase smallest{{"topk",
                        {{6, 4, 2}},
                        {{3, 4, 2}, {3, 4, 2}},
                        {std::int64_t{3}, std::int64_t{0}, false},
                        three_smallest}};
  smallest.outputs = {0};
  return {smallest,
          {{"argmax", {{4, 6}}, {{1}}, {std::int64_t{0}, false, true}, largest_of_all}},
          {{"one_hot", {{4, 6}}, {{4, 6, 3}}, {std::int64_t{3}}, ones}, {"floor"}},
          running_sum(0, false, true),
          running_sum(1, true, false),
          running_sum(2, true, true)};
}

/// Ids and labels are drawn, and not seen from outside; examples are trained with them.
std::vector<TrainedCase> choosing() {
  const Shape logits = {4, 6}, labels = {4, 1};
  std::vector<TrainedCase> cases = {
      {{"embedding", {{4, 2}, {6, 4}}, {{4, 2, 4}}, {}, {}}, {}, {"int64"}}};
  for (const char* rule : {"cross_entropy_with_softmax", "c_softmax_with_cross_entropy"}) {
    cases.push_back({{rule, {logits, labels}, {logits, labels}, {}, {}}, {}, {"", "int64"}, {1}});
  }
  return cases;
}

/// Of the operators on small arrays, those that are computed as defined.
std::vector<TrainedCase> of_small_operators() {
  const std::set<std::string> rules = {"sum",     "mean",    "layer_norm", "rms_norm",  "transpose",
                                       "reshape", "flatten", "squeeze",    "unsqueeze", "concat",
                                       "stack",   "split",   "slice",      "pad",       "tile",
                                       "triu",    "matmul",  "argmax",     "cumsum",    "topk"};
  std::vector<TrainedCase> cases;
  for (OperatorCase& one : operator_cases()) {
    if (rules.count(one.name) == 0) continue;
    const bool has_more = one.outputs.size() > 1 && one.name != "split";
    cases.push_back({std::move(one)});
    if (has_more) cases.back().outputs = {0};
    if (cases.back().one.name == "rms_norm") {
      cases.push_back(cases.back());
      cases.back().one.name = "fused_rms_norm";
    }
  }
  return cases;
}

}  // namespace

std::vector<TrainedCase> trained_cases() {
  std::vector<TrainedCase> cases = of_small_operators();
  for (auto* more :
       {curves, surfaces, comparing, of_more, attending, arranging, routing, choosing}) {
    for (TrainedCase& one : more()) cases.push_back(std::move(one));
  }
  for (TrainedCase one : {softmax_along(0), softmax_along(1), softmax_along(2), batched_product(),
                          turned_product()}) {
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace pipewright::spmd::test
