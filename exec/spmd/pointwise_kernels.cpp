// Operators that compute each element from those in the same place: its value and its slopes, in
// one declaration each.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "exec/spmd/broadcast_places.hpp"
#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

// --- Of one tensor ---------------------------------------------------------------------------

/// y = value(x), and dy/dx by both.
struct Curve {
  double (*value)(double x);
  double (*slope)(double x, double y);
};

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double normal_share(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

constexpr Curve kSame{[](double x) { return x; }, [](double, double) { return 1.0; }};
constexpr Curve kAbs{[](double x) { return std::abs(x); },
                     [](double x, double) { return x > 0   ? 1.0
                                                   : x < 0 ? -1.0
                                                           : 0.0; }};
constexpr Curve kCos{[](double x) { return std::cos(x); },
                     [](double x, double) { return -std::sin(x); }};
constexpr Curve kErf{
    [](double x) { return std::erf(x); },
    [](double x, double) { return 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x); }};
constexpr Curve kExp{[](double x) { return std::exp(x); }, [](double, double y) { return y; }};
double level(double, double) { return 0; }
constexpr Curve kCeil{[](double x) { return std::ceil(x); }, level};
constexpr Curve kFloor{[](double x) { return std::floor(x); }, level};
constexpr Curve kIsNan{[](double x) { return std::isnan(x) ? 1.0 : 0.0; }, level};
constexpr Curve kIsZero{[](double x) { return x == 0 ? 1.0 : 0.0; }, level};
constexpr Curve kLog{[](double x) { return std::log(x); }, [](double x, double) { return 1 / x; }};
constexpr Curve kRelu{[](double x) { return x < 0 ? 0.0 : x; },
                      [](double, double y) { return y > 0 ? 1.0 : 0.0; }};
constexpr Curve kRsqrt{[](double x) { return 1 / std::sqrt(x); },
                       [](double, double y) { return -y * y * y / 2; }};
constexpr Curve kSigmoid{sigmoid_of, [](double, double y) { return y * (1 - y); }};
constexpr Curve kSilu{[](double x) { return x * sigmoid_of(x); },
                      [](double x, double y) { return sigmoid_of(x) * (1 + x - y); }};
constexpr Curve kSin{[](double x) { return std::sin(x); },
                     [](double x, double) { return std::cos(x); }};
constexpr Curve kSqrt{[](double x) { return std::sqrt(x); },
                      [](double, double y) { return 1 / (2 * y); }};
constexpr Curve kSquare{[](double x) { return x * x; }, [](double x, double) { return 2 * x; }};
constexpr Curve kTanh{[](double x) { return std::tanh(x); },
                      [](double, double y) { return 1 - y * y; }};
constexpr Curve kGelu{[](double x) { return x * normal_share(x); },
                      [](double x, double) { return normal_share(x) + x * normal_density(x); }};
/// x / 2 · (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 x³): (1 + tanh u) / 2 is a sigmoid.
constexpr double kGeluSlope = 1.5957691216057308;  // 2 sqrt(2 / pi)
double gelu_share(double x) { return sigmoid_of(kGeluSlope * (x + 0.044715 * x * x * x)); }
constexpr Curve kGeluByTanh{[](double x) { return x * gelu_share(x); },
                            [](double x, double) {
                              const double share = gelu_share(x);
                              const double slope = kGeluSlope * (1 + 3 * 0.044715 * x * x);
                              return share + x * share * (1 - share) * slope;
                            }};

/// Each rounded once.
template <class Value>
void each(const LocalCall& call, Value value) {
  const std::vector<float>& x = call.inputs[0]->values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    call.outputs[0]->values[i] = static_cast<float>(value(static_cast<double>(x[i])));
  }
}

template <class Slope>
void each_back(const LocalCall& call, Slope slope) {
  const std::vector<float>&x = call.inputs[0]->values, &y = call.outputs[0]->values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    call.gradients[0]->values[i] +=
        static_cast<float>(slope(static_cast<double>(x[i]), static_cast<double>(y[i])) *
                           static_cast<double>(call.of_outputs[0]->values[i]));
  }
}

template <const Curve& curve>
LocalOperator along(std::string_view rule) {
  return {.rule = rule,
          .forward = [](const LocalCall& call) { each(call, curve.value); },
          .backward = [](const LocalCall& call) { each_back(call, curve.slope); }};
}

const Curve& gelu_of(const LocalCall& call) {
  return operands_of(call).boolean("approximate") ? kGeluByTanh : kGelu;
}
void gelu(const LocalCall& call) { each(call, gelu_of(call).value); }
void gelu_back(const LocalCall& call) { each_back(call, gelu_of(call).slope); }

void scale(const LocalCall& call) {
  const spmd::Operands operands = operands_of(call);
  const double factor = operands.number("scale"), added = operands.number("bias");
  each(call, [&](double x) { return factor * x + added; });
}
void scale_back(const LocalCall& call) {
  const double factor = operands_of(call).number("scale");
  each_back(call, [&](double, double) { return factor; });
}

void power(const LocalCall& call) {
  const double exponent = operands_of(call).number("factor");
  each(call, [&](double x) { return std::pow(x, exponent); });
}
void power_back(const LocalCall& call) {
  const double exponent = operands_of(call).number("factor");
  each_back(call, [&](double x, double) { return exponent * std::pow(x, exponent - 1); });
}

// --- Of two ----------------------------------------------------------------------------------

/// out = combine(x, y), where dimensions of size 1 are repeated.
template <class Combine>
void of_two(const LocalCall& call, Combine combine) {
  const spmd::Shape& shape = call.outputs[0]->part.shape;
  const BroadcastPlaces x(shape_of(call.inputs[0]), shape), y(shape_of(call.inputs[1]), shape);
  for (std::size_t i = 0; i < call.outputs[0]->values.size(); ++i) {
    call.outputs[0]->values[i] =
        combine(call.inputs[0]->values[x.at(i)], call.inputs[1]->values[y.at(i)]);
  }
}

/// Adds to each input's gradient factor(x, y) times that of the output.
template <class OfX, class OfY>
void of_two_back(const LocalCall& call, OfX of_x, OfY of_y) {
  const spmd::Shape& shape = call.of_outputs[0]->part.shape;
  const BroadcastPlaces x(shape_of(call.inputs[0]), shape), y(shape_of(call.inputs[1]), shape);
  for (std::size_t i = 0; i < call.of_outputs[0]->values.size(); ++i) {
    const float given = call.of_outputs[0]->values[i];
    const float left = call.inputs[0]->values[x.at(i)], right = call.inputs[1]->values[y.at(i)];
    if (call.gradients[0] != nullptr) {
      call.gradients[0]->values[x.at(i)] += of_x(left, right) * given;
    }
    if (call.gradients[1] != nullptr) {
      call.gradients[1]->values[y.at(i)] += of_y(left, right) * given;
    }
  }
}

/// out, and its slopes along x and y.
struct Surface {
  float (*value)(float x, float y);
  float (*along_x)(float x, float y);
  float (*along_y)(float x, float y);
};

float one_of(float, float) { return 1; }
float minus_one_of(float, float) { return -1; }
float first_of(float x, float) { return x; }
float second_of(float, float y) { return y; }
float at_curve(double (*value)(double), float x) {
  return static_cast<float>(value(static_cast<double>(x)));
}

constexpr Surface kAdd{[](float x, float y) { return x + y; }, one_of, one_of};
constexpr Surface kSubtract{[](float x, float y) { return x - y; }, one_of, minus_one_of};
constexpr Surface kMultiply{[](float x, float y) { return x * y; }, second_of, first_of};
constexpr Surface kDivide{[](float x, float y) { return x / y; },
                          [](float, float y) { return 1 / y; },
                          [](float x, float y) { return -x / (y * y); }};
constexpr Surface kPower{[](float x, float y) { return std::pow(x, y); },
                         [](float x, float y) { return y * std::pow(x, y - 1); },
                         [](float x, float y) { return std::log(x) * std::pow(x, y); }};
constexpr Surface kLarger{[](float x, float y) { return x < y ? y : x; },
                          [](float x, float y) { return x < y ? 0.0F : 1.0F; },
                          [](float x, float y) { return x < y ? 1.0F : 0.0F; }};
constexpr Surface kSmaller{[](float x, float y) { return y < x ? y : x; },
                           [](float x, float y) { return y < x ? 0.0F : 1.0F; },
                           [](float x, float y) { return y < x ? 1.0F : 0.0F; }};
constexpr Surface kSwiglu{[](float x, float y) { return at_curve(kSilu.value, x) * y; },
                          [](float x, float y) {
                            const double at = static_cast<double>(x);
                            return static_cast<float>(kSilu.slope(at, kSilu.value(at))) * y;
                          },
                          [](float x, float) { return at_curve(kSilu.value, x); }};

template <class Compare>
LocalOperator comparing(std::string_view rule) {
  return {.rule = rule,
          .forward =
              [](const LocalCall& call) {
                of_two(call, [](float x, float y) { return Compare{}(x, y) ? 1.0F : 0.0F; });
              },
          .backward = [](const LocalCall&) {}};
}

template <const Surface& surface>
LocalOperator over(std::string_view rule) {
  return {.rule = rule,
          .forward = [](const LocalCall& call) { of_two(call, surface.value); },
          .backward =
              [](const LocalCall& call) { of_two_back(call, surface.along_x, surface.along_y); }};
}

// --- Of more ---------------------------------------------------------------------------------

void add_all(const LocalCall& call) {
  for (const LocalArray* input : call.inputs) {
    const BroadcastPlaces places(shape_of(input), shape_of(call.outputs[0]));
    for (std::size_t i = 0; i < call.outputs[0]->values.size(); ++i) {
      call.outputs[0]->values[i] += input->values[places.at(i)];
    }
  }
}

void add_all_back(const LocalCall& call) {
  for (std::size_t input = 0; input < call.inputs.size(); ++input) {
    if (call.gradients[input] == nullptr) continue;
    const BroadcastPlaces places(shape_of(call.inputs[input]), shape_of(call.of_outputs[0]));
    for (std::size_t i = 0; i < call.of_outputs[0]->values.size(); ++i) {
      call.gradients[input]->values[places.at(i)] += call.of_outputs[0]->values[i];
    }
  }
}

/// Calls act(number of the input that is chosen, where in it, element of the output).
template <class Act>
void for_each_choice(const LocalCall& call, const spmd::Shape& shape, Act act) {
  const BroadcastPlaces condition(shape_of(call.inputs[0]), shape);
  const BroadcastPlaces x(shape_of(call.inputs[1]), shape), y(shape_of(call.inputs[2]), shape);
  for (std::size_t i = 0; i < sized(elements(shape, 0, shape.size())); ++i) {
    const bool is_x = call.inputs[0]->values[condition.at(i)] != 0;
    act(is_x ? std::size_t{1} : std::size_t{2}, is_x ? x.at(i) : y.at(i), i);
  }
}

void choose(const LocalCall& call) {
  for_each_choice(call, shape_of(call.outputs[0]),
                  [&](std::size_t input, std::size_t place, std::size_t i) {
                    call.outputs[0]->values[i] = call.inputs[input]->values[place];
                  });
}

void choose_back(const LocalCall& call) {
  for_each_choice(call, shape_of(call.of_outputs[0]),
                  [&](std::size_t input, std::size_t place, std::size_t i) {
                    if (call.gradients[input] == nullptr) return;
                    call.gradients[input]->values[place] += call.of_outputs[0]->values[i];
                  });
}

}  // namespace

std::vector<LocalOperator> pointwise_kernels() {
  return {
      over<kAdd>("add"),
      {.rule = "add_n", .forward = add_all, .backward = add_all_back},
      along<kAbs>("abs"),
      along<kSame>("assign"),
      along<kSame>("cast"),
      along<kCeil>("ceil"),
      along<kCos>("cos"),
      over<kDivide>("divide"),
      over<kPower>("elementwise_pow"),
      comparing<std::equal_to<>>("equal"),
      along<kErf>("erf"),
      along<kExp>("exp"),
      along<kFloor>("floor"),
      {.rule = "gelu", .forward = gelu, .backward = gelu_back},
      comparing<std::greater_equal<>>("greater_equal"),
      comparing<std::greater<>>("greater_than"),
      along<kIsNan>("isnan"),
      comparing<std::less_equal<>>("less_equal"),
      comparing<std::less<>>("less_than"),
      along<kLog>("log"),
      along<kIsZero>("logical_not"),
      over<kLarger>("maximum"),
      over<kSmaller>("minimum"),
      over<kMultiply>("multiply"),
      comparing<std::not_equal_to<>>("not_equal"),
      {.rule = "pow", .forward = power, .backward = power_back},
      along<kRelu>("relu"),
      along<kRsqrt>("rsqrt"),
      {.rule = "scale", .forward = scale, .backward = scale_back},
      along<kSigmoid>("sigmoid"),
      along<kSilu>("silu"),
      along<kSin>("sin"),
      along<kSqrt>("sqrt"),
      along<kSquare>("square"),
      over<kSubtract>("subtract"),
      over<kSwiglu>("swiglu"),
      along<kSilu>("swish"),
      along<kTanh>("tanh"),
      {.rule = "where", .forward = choose, .backward = choose_back},
  };
}

}  // namespace pipewright::exec::graphs
