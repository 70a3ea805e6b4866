#include "tests/property/spmd/small_operators.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::spmd::test {
namespace {

std::size_t place_of(const Shape& shape, const Shape& index) {
  std::size_t place = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    place = place * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(index[axis]);
  }
  return place;
}

std::vector<Array> add(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    return broadcast_at(c.inputs[0], at) + broadcast_at(c.inputs[1], at);
  });
}

std::vector<Array> where(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    return broadcast_at(c.inputs[broadcast_at(c.inputs[0], at) > 4 ? 1 : 2], at);
  });
}

std::vector<Array> relu(const Computation& c) {
  return filled(c, [&](const Shape& at) { return std::max(0.0, c.inputs[0].at(at) - 4); });
}

/// [rows, k] and [k, columns], with x whole batches before them.
std::vector<Array> matmul(const Computation& c) {
  const std::int64_t k = c.inputs[0].shape.back();
  return filled(c, [&](const Shape& at) {
    double sum = 0;
    Shape left = at, right(at.end() - 2, at.end());
    for (std::int64_t i = 0; i < k; ++i) {
      left.back() = right[0] = i;
      sum += c.inputs[0].at(left) * c.inputs[1].at(right);
    }
    return sum;
  });
}

/// y transposed.
std::vector<Array> matmul_transposed(const Computation& c) {
  Computation plain = c;
  const Array& y = c.inputs[1];
  plain.inputs[1] = zeros({y.shape[1], y.shape[0]});
  for_each_index(y.shape, [&](const Shape& at) { plain.inputs[1].at({at[1], at[0]}) = y.at(at); });
  return matmul(plain);
}

/// Folds the dimension `axis`, which goes, from `start`.
std::vector<Array> folded(const Computation& c, std::size_t axis, double start,
                          const std::function<double(double, double)>& fold,
                          const std::function<double(double)>& finish) {
  return filled(c, [&](const Shape& at) {
    double value = start;
    Shape index = at;
    index.insert(index.begin() + static_cast<std::ptrdiff_t>(axis), 0);
    for (; index[axis] < c.inputs[0].shape[axis]; ++index[axis]) {
      value = fold(value, c.inputs[0].at(index));
    }
    return finish(value);
  });
}

double same(double value) { return value; }
double plus(double sum, double value) { return sum + value; }
double plus_square(double sum, double value) { return sum + value * value; }
double plus_exponential(double sum, double value) { return sum + std::exp(value); }
double larger(double most, double value) { return std::max(most, value); }

std::vector<Array> argmax(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < c.inputs[0].shape[1]; ++i) {
      if (c.inputs[0].at({at[0], i}) > c.inputs[0].at({at[0], best})) best = i;
    }
    return static_cast<double>(best);
  });
}

/// How many elements of its row are ahead of each says where it goes; of equal ones the first is.
std::vector<Array> two_largest(const Computation& c) {
  std::vector<Array> made = {zeros(c.outputs[0]), zeros(c.outputs[1])};
  for_each_index(c.inputs[0].shape, [&](const Shape& at) {
    std::int64_t ahead = 0;
    for (std::int64_t i = 0; i < c.inputs[0].shape[1]; ++i) {
      const double other = c.inputs[0].at({at[0], i}), own = c.inputs[0].at(at);
      if (other > own || (other == own && i < at[1])) ++ahead;
    }
    if (ahead >= c.outputs[0][1]) return;
    made[0].at({at[0], ahead}) = c.inputs[0].at(at);
    made[1].at({at[0], ahead}) = static_cast<double>(at[1]);
  });
  return made;
}

std::vector<Array> cumsum(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    double sum = 0;
    for (std::int64_t i = 0; i <= at[0]; ++i) sum += c.inputs[0].at({i, at[1]});
    return sum;
  });
}

std::vector<Array> softmax(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    const double own = c.inputs[0].at(at);
    double sum = 0;
    for (std::int64_t i = 0; i < c.inputs[0].shape[1]; ++i) {
      sum += std::exp(c.inputs[0].at({at[0], i}) - own);
    }
    return 1 / sum;
  });
}

std::vector<Array> transpose(const Computation& c) {
  return filled(c, [&](const Shape& at) { return c.inputs[0].at({at[2], at[0], at[1]}); });
}

std::vector<Array> reshaped(const Computation& c) { return {{c.outputs[0], c.inputs[0].values}}; }

std::vector<Array> concat(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    const std::int64_t first = c.inputs[0].shape[0];
    return at[0] < first ? c.inputs[0].at(at) : c.inputs[1].at({at[0] - first, at[1]});
  });
}

std::vector<Array> stack(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    return c.inputs[static_cast<std::size_t>(at[1])].at({at[0], at[2]});
  });
}

std::vector<Array> split(const Computation& c) {
  std::vector<Array> parts;
  std::int64_t begin = 0;
  for (const Shape& shape : c.outputs) {
    parts.push_back(zeros(shape));
    for_each_index(shape, [&](const Shape& at) {
      parts.back().at(at) = c.inputs[0].at({at[0], at[1] + begin});
    });
    begin += shape[1];
  }
  return parts;
}

std::vector<Array> sliced(const Computation& c) {
  return filled(c, [&](const Shape& at) { return c.inputs[0].at({at[0], at[1] + 1}); });
}

std::vector<Array> padded(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    return at[1] == 0 ? 0 : c.inputs[0].at({at[0], at[1] - 1});
  });
}

std::vector<Array> tiled(const Computation& c) {
  const std::int64_t columns = c.inputs[0].shape[1];
  return filled(c, [&](const Shape& at) { return c.inputs[0].at({at[1], at[2] % columns}); });
}

std::vector<Array> triangle(const Computation& c) {
  return filled(c, [&](const Shape& at) { return at[2] >= at[1] ? c.inputs[0].at(at) : 0; });
}

std::vector<Array> gathered(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    const auto column = static_cast<std::int64_t>(c.inputs[1].at({at[1]}));
    return c.inputs[0].at({at[0], column});
  });
}

std::vector<Array> looked_up(const Computation& c, std::size_t table) {
  const Array &rows = c.inputs[table], &ids = c.inputs[1 - table];
  return filled(c, [&](const Shape& at) {
    const auto row = static_cast<std::int64_t>(ids.at({at[0], at[1]})) - c.offsets[table][0];
    return row < 0 || row >= rows.shape[0] ? 0 : rows.at({row, at[2]});
  });
}

std::vector<Array> one_hot(const Computation& c) {
  return filled(c, [&](const Shape& at) {
    return static_cast<double>(c.inputs[0].at({at[0]}) == static_cast<double>(at[1]));
  });
}

std::vector<Array> convolved(const Computation& c) {
  const Array &image = c.inputs[0], &filter = c.inputs[1];
  return filled(c, [&](const Shape& at) {
    double sum = 0;
    for_each_index({filter.shape[1], filter.shape[2], filter.shape[3]}, [&](const Shape& k) {
      sum += image.at({at[0], k[0], at[2] + k[1], at[3] + k[2]}) *
             filter.at({at[1], k[0], k[1], k[2]});
    });
    return sum;
  });
}

std::vector<Array> normalised(const Computation& c) {
  const Array& x = c.inputs[0];
  Array out = zeros(x.shape), mean = zeros({x.shape[0]}), variance = zeros({x.shape[0]});
  const auto width = static_cast<double>(x.shape[1]);
  for_each_index(x.shape, [&](const Shape& at) { mean.at({at[0]}) += x.at(at) / width; });
  for_each_index(x.shape, [&](const Shape& at) {
    variance.at({at[0]}) += std::pow(x.at(at) - mean.at({at[0]}), 2) / width;
  });
  for_each_index(x.shape, [&](const Shape& at) {
    const double unit = (x.at(at) - mean.at({at[0]})) / std::sqrt(variance.at({at[0]}) + 1e-5);
    out.at(at) = unit * c.inputs[1].at({at[1]}) + c.inputs[2].at({at[1]});
  });
  return {std::move(out), std::move(mean), std::move(variance)};
}

std::vector<Array> normalised_by_size(const Computation& c) {
  const Array& x = c.inputs[0];
  Array out = zeros(x.shape), inverse = zeros({x.shape[0], x.shape[1]});
  for_each_index(inverse.shape, [&](const Shape& row) {
    double squares = 0;
    for (std::int64_t k = 0; k < x.shape[2]; ++k) squares += std::pow(x.at({row[0], row[1], k}), 2);
    inverse.at(row) = 1 / std::sqrt(squares / static_cast<double>(x.shape[2]) + 1e-5);
  });
  for_each_index(x.shape, [&](const Shape& at) {
    out.at(at) = x.at(at) * inverse.at({at[0], at[1]}) * c.inputs[1].at({at[2]});
  });
  return {std::move(out), std::move(inverse)};
}

/// Heads of keys and values serve as many of queries as follow each other; where one alone serves
/// all, it is here whole. The second result is the logarithm of the sum of exponentials.
std::vector<Array> attended(const Computation& c, HeadAxes axes) {
  const Array &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2];
  const std::int64_t heads = q.shape[axes.head], own = k.shape[axes.head];
  Array out = zeros(c.outputs[0]), sums = zeros({q.shape[0], heads, q.shape[axes.token]});
  const auto place = [&](std::int64_t batch, std::int64_t head, std::int64_t token) {
    Shape at = {batch, 0, 0, 0};
    at[axes.head] = head;
    at[axes.token] = token;
    return at;
  };
  for_each_index(sums.shape, [&](const Shape& row) {
    const Shape query = place(row[0], row[1], row[2]);
    std::vector<double> shares;
    for (std::int64_t token = 0; token < k.shape[axes.token]; ++token) {
      Shape left = query, right = place(row[0], row[1] * own / heads, token);
      double score = 0;
      for (; left[3] < q.shape[3]; ++left[3], ++right[3]) score += q.at(left) * k.at(right);
      shares.push_back(std::exp(score / 16));
      sums.at(row) += shares.back();
    }
    for (std::int64_t token = 0; token < k.shape[axes.token]; ++token) {
      Shape to = query, from = place(row[0], row[1] * own / heads, token);
      for (; to[3] < v.shape[3]; ++to[3], ++from[3]) {
        out.at(to) += shares[static_cast<std::size_t>(token)] * v.at(from) / sums.at(row);
      }
    }
    sums.at(row) = std::log(sums.at(row));
  });
  return {std::move(out), std::move(sums)};
}

/// The shares of the tokens are not given back, and the state of random numbers is none.
std::vector<Array> flash_attended(const Computation& c) {
  auto made = attended(c, {.head = 2, .token = 1});
  return {std::move(made[0]), zeros(c.outputs[1]), std::move(made[1]), zeros(c.outputs[3])};
}

std::vector<Array> attended_by_heads(const Computation& c) {
  return {attended(c, {.head = 1, .token = 2})[0]};
}

std::vector<Array> weight_gradients(const Computation& c) {
  const Array &x = c.inputs[0], &dout = c.inputs[1];
  Array weight = zeros(c.outputs[0]), bias = zeros({dout.shape[1]});
  for_each_index(dout.shape, [&](const Shape& at) {
    bias.at({at[1]}) += dout.at(at);
    for (std::int64_t k = 0; k < x.shape[1]; ++k) {
      weight.at({k, at[1]}) += x.at({at[0], k}) * dout.at(at);
    }
  });
  return {std::move(weight), std::move(bias)};
}

std::function<std::vector<Array>(const Computation&)> reduction(double start,
                                                                double (*fold)(double, double),
                                                                double (*finish)(double) = same) {
  return [=](const Computation& c) { return folded(c, 1, start, fold, finish); };
}

using Integers = std::vector<std::int64_t>;
const Attribute kAlongOne = std::int64_t{1};

std::vector<OperatorCase> reducing_cases() {
  const std::vector<Attribute> over_one = {Integers{1}, false};
  return {
      {"sum", {{4, 5}}, {{4}}, over_one, reduction(0, plus)},
      {"max", {{4, 5}}, {{4}}, over_one, reduction(-1e300, larger)},
      {"mean",
       {{4, 6}},
       {{4}},
       over_one,
       [](const Computation& c) {
         std::vector<Array> made = folded(c, 1, 0, plus, same);
         for (double& value : made[0].values) value /= static_cast<double>(c.inputs[0].shape[1]);
         return made;
       }},
      {"squared_l2_norm", {{4, 5}}, {{4}}, over_one, reduction(0, plus_square)},
      {"logsumexp",
       {{4, 5}},
       {{4}},
       over_one,
       reduction(0, plus_exponential, [](double sum) { return std::log(sum); })},
      {"p_norm",
       {{4, 5}},
       {{4}},
       {2.0, kAlongOne},
       reduction(0, plus_square, [](double sum) { return std::sqrt(sum); })},
      {"argmax", {{4, 5}}, {{4}}, {kAlongOne}, argmax},
      {"cumsum", {{4, 5}}, {{4, 5}}, {std::int64_t{0}}, cumsum},
      {"topk", {{4, 5}}, {{4, 2}, {4, 2}}, {std::int64_t{2}, kAlongOne}, two_largest},
      {"softmax", {{4, 5}}, {{4, 5}}, {kAlongOne}, softmax},
      {"layer_norm", {{5, 4}, {4}, {4}}, {{5, 4}, {5}, {5}}, {1e-5, kAlongOne}, normalised},
      {"rms_norm", {{5, 2, 4}, {4}}, {{5, 2, 4}, {5, 2}}, {}, normalised_by_size},
  };
}

/// As many heads of keys as of queries, half as many, and one.
std::vector<OperatorCase> attending_cases() {
  std::vector<OperatorCase> cases;
  for (const std::int64_t keys : {4, 2, 1}) {
    const Shape q = {2, 2, 4, 1}, k = {2, 3, keys, 1}, by_heads = {3, 4, 1, 1};
    cases.push_back({"flash_attention",
                     {q, k, k, {}, {}},
                     {q, {2, 4, 2, 3}, {2, 4, 2}, {2}},
                     {},
                     flash_attended,
                     {},
                     false,
                     {2}});
    const Shape few = {3, keys, 2, 1};
    cases.push_back({"scaled_dot_product_attention",
                     {by_heads, few, few, {}},
                     {by_heads},
                     {},
                     attended_by_heads,
                     {},
                     false,
                     {2}});
  }
  return cases;
}

std::vector<OperatorCase> arranging_cases() {
  return {
      {"transpose", {{3, 4, 2}}, {{4, 2, 3}}, {Integers{1, 2, 0}}, transpose},
      {"reshape", {{4, 6}}, {{24}}, {Integers{-1}}, reshaped},
      {"reshape", {{24}}, {{4, 6}}, {Integers{4, 6}}, reshaped},
      {"reshape", {{6, 4}}, {{4, 6}}, {Integers{4, 6}}, reshaped},
      {"flatten", {{4, 6, 2}}, {{4, 12}}, {kAlongOne, std::int64_t{2}}, reshaped},
      {"squeeze", {{5, 1, 4}}, {{5, 4}}, {Integers{1}}, reshaped},
      {"unsqueeze", {{5, 4}}, {{5, 1, 4}}, {Integers{1}}, reshaped},
      {"concat", {{3, 4}, {2, 4}}, {{5, 4}}, {std::int64_t{0}}, concat, {}, true},
      {"stack", {{5, 4}, {5, 4}}, {{5, 2, 4}}, {kAlongOne}, stack, {}, true},
      {"split", {{4, 5}}, {{4, 2}, {4, 3}}, {Integers{2, 3}, kAlongOne}, split},
      {"slice", {{5, 4}}, {{5, 3}}, {Integers{1}, Integers{1}, Integers{4}}, sliced},
      {"pad", {{5, 4}}, {{5, 5}}, {Integers{0, 0, 1, 0}}, padded},
      {"tile", {{5, 4}}, {{2, 5, 8}}, {Integers{2, 1, 2}}, tiled},
      {"triu", {{2, 3, 4}}, {{2, 3, 4}}, {std::int64_t{0}}, triangle},
  };
}

std::vector<OperatorCase> choosing_cases() {
  const auto in_rows = [](const Computation& c) { return looked_up(c, 0); };
  const auto by_ids = [](const Computation& c) { return looked_up(c, 1); };
  return {
      {"gather", {{4, 5}, {3}}, {{4, 3}}, {kAlongOne}, gathered, {9, 5}},
      {"embedding", {{3, 2}, {5, 4}}, {{3, 2, 4}}, {}, by_ids, {5, 9}},
      {"c_embedding", {{5, 4}, {3, 2}}, {{3, 2, 4}}, {}, in_rows, {9, 5}},
      {"one_hot", {{5}}, {{5, 3}}, {std::int64_t{3}}, one_hot, {3}},
  };
}

std::vector<OperatorCase> multiplying_cases() {
  return {
      {"add", {{5, 4}, {5, 4}}, {{5, 4}}, {}, add},
      {"add", {{5, 1, 4}, {3, 1}}, {{5, 3, 4}}, {}, add},
      {"where", {{3, 4}, {3, 4}, {3, 1}}, {{3, 4}}, {}, where},
      {"relu", {{5, 4}}, {{5, 4}}, {}, relu},
      {"matmul", {{5, 4}, {4, 3}}, {{5, 3}}, {}, matmul},
      {"matmul", {{2, 3, 4}, {4, 3}}, {{2, 3, 3}}, {}, matmul},
      {"matmul", {{5, 4}, {3, 4}}, {{5, 3}}, {false, true}, matmul_transposed},
      {"conv2d", {{2, 4, 4, 4}, {4, 4, 3, 3}}, {{2, 4, 2, 2}}, {}, convolved},
      {"fused_linear_param_grad_add",
       {{6, 4}, {6, 3}, {}, {}},
       {{4, 3}, {3}},
       {std::int64_t{0}, true},
       weight_gradients},
  };
}

}  // namespace

double& Array::at(const Shape& index) { return values[place_of(shape, index)]; }
double Array::at(const Shape& index) const { return values[place_of(shape, index)]; }

Array zeros(Shape shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return {std::move(shape), std::vector<double>(count)};
}

void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& act) {
  Shape index(shape.size());
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  while (true) {
    act(index);
    std::size_t axis = shape.size();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

std::vector<Array> filled(const Computation& c, const std::function<double(const Shape&)>& value) {
  Array out = zeros(c.outputs[0]);
  for_each_index(out.shape, [&](const Shape& index) { out.at(index) = value(index); });
  return {std::move(out)};
}

double broadcast_at(const Array& array, const Shape& index) {
  Shape own(index.end() - static_cast<std::ptrdiff_t>(array.shape.size()), index.end());
  for (std::size_t axis = 0; axis < own.size(); ++axis) {
    if (array.shape[axis] == 1) own[axis] = 0;
  }
  return array.at(own);
}

std::vector<OperatorCase> operator_cases() {
  std::vector<OperatorCase> cases = multiplying_cases();
  for (auto* more : {reducing_cases, attending_cases, arranging_cases, choosing_cases}) {
    for (OperatorCase& one : more()) cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace pipewright::spmd::test
