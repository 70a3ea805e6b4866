#include "exec/spmd/local_operators.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/spmd/operators.hpp"
#include "core/spmd/reshard_steps.hpp"
#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/layers/ops.hpp"
#include "exec/spmd/broadcast_places.hpp"

namespace pipewright::exec::graphs {
namespace {

using spmd::Shape;

int small(std::int64_t size) { return static_cast<int>(size); }

const Shape& shape_of(const LocalArray* array) { return array->part.shape; }

std::int64_t elements(const Shape& shape, std::size_t first, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t at = first; at < end; ++at) product *= shape[at];
  return product;
}

bool flag(const spmd::GraphOperator& one, std::size_t place) {
  if (place >= one.attributes.size()) return false;
  const bool* value = std::get_if<bool>(&one.attributes[place]);
  return value != nullptr && *value;
}

std::vector<std::int32_t> whole_numbers(const LocalArray& array) {
  std::vector<std::int32_t> numbers;
  for (const float value : array.values) numbers.push_back(static_cast<std::int32_t>(value));
  return numbers;
}

// --- Products --------------------------------------------------------------------------------

/// c[m][n] += a[m][k] · b[k][n], each of so many times.
struct Product {
  bool trans_x, trans_y;
  int m = 0, k = 0, n = 0;
  std::int64_t times = 1;
  std::size_t y_step = 0;  // from one y to the next

  std::size_t x_step() const { return sized(std::int64_t{m} * k); }
  std::size_t out_step() const { return sized(std::int64_t{m} * n); }
  cpu::MatrixView x(const float* at, bool turned = false) const {
    return {at, trans_x ? m : k, trans_x != turned};
  }
  cpu::MatrixView y(const float* at, bool turned = false) const {
    return {at, trans_y ? k : n, trans_y != turned};
  }
};

/// With one y for all x, rows of all batches are rows of one product.
Product product_of(const LocalCall& call) {
  const Shape &x = shape_of(call.inputs[0]), &y = shape_of(call.inputs[1]);
  Product product{.trans_x = flag(call.one, 0), .trans_y = flag(call.one, 1)};
  const std::size_t last = x.size() - 1;
  product.m = small(x[product.trans_x ? last : last - 1]);
  product.k = small(x[product.trans_x ? last - 1 : last]);
  product.n = small(y[product.trans_y ? y.size() - 2 : y.size() - 1]);
  product.times = elements(x, 0, last - 1);
  if (y.size() > 2) {
    product.y_step = sized(std::int64_t{product.k} * product.n);
  } else if (!product.trans_x) {
    product.m = small(product.m * product.times);
    product.times = 1;
  }
  return product;
}

bool is_empty(const Product& p) { return p.m == 0 || p.n == 0; }

void multiply_matrices(const LocalCall& call) {
  const Product p = product_of(call);
  if (is_empty(p)) return;
  for (std::size_t at = 0; at < sized(p.times); ++at) {
    float* out = call.outputs[0]->values.data() + at * p.out_step();
    if (p.k == 0) continue;
    cpu::gemm({p.m, p.n, p.k}, 1, p.x(call.inputs[0]->values.data() + at * p.x_step()),
              p.y(call.inputs[1]->values.data() + at * p.y_step), 0, out, p.n, Numerics::Exact);
  }
}

/// dx = dout · y', dy = x' · dout; each as it is stored.
void multiply_matrices_back(const LocalCall& call) {
  const Product p = product_of(call);
  if (is_empty(p) || p.k == 0) return;
  for (std::size_t at = 0; at < sized(p.times); ++at) {
    const float* x = call.inputs[0]->values.data() + at * p.x_step();
    const float* y = call.inputs[1]->values.data() + at * p.y_step;
    const float* dout = call.of_outputs[0]->values.data() + at * p.out_step();
    const cpu::MatrixView as_is{dout, p.n, false}, turned{dout, p.n, true};
    if (call.gradients[0] != nullptr) {
      float* dx = call.gradients[0]->values.data() + at * p.x_step();
      if (p.trans_x) {
        cpu::gemm({p.k, p.m, p.n}, 1, p.y(y), turned, 1, dx, p.m, Numerics::Exact);
      } else {
        cpu::gemm({p.m, p.k, p.n}, 1, as_is, p.y(y, true), 1, dx, p.k, Numerics::Exact);
      }
    }
    if (call.gradients[1] != nullptr) {
      float* dy = call.gradients[1]->values.data() + at * p.y_step;
      if (p.trans_y) {
        cpu::gemm({p.n, p.k, p.m}, 1, turned, p.x(x), 1, dy, p.k, Numerics::Exact);
      } else {
        cpu::gemm({p.k, p.n, p.m}, 1, p.x(x, true), as_is, 1, dy, p.n, Numerics::Exact);
      }
    }
  }
}

// --- Element by element ----------------------------------------------------------------------

void copy_elements(const LocalCall& call) { call.outputs[0]->values = call.inputs[0]->values; }

void pass_back(const LocalCall& call) {
  for (std::size_t i = 0; i < call.gradients[0]->values.size(); ++i) {
    call.gradients[0]->values[i] += call.of_outputs[0]->values[i];
  }
}

void take_positive(const LocalCall& call) {
  relu_forward(call.inputs[0]->values.size(), call.inputs[0]->values.data(),
               call.outputs[0]->values.data());
}

/// Adds what a kernel, which overwrites, gives of the gradient.
template <class Kernel>
void add_from(const LocalCall& call, Kernel kernel) {
  std::vector<float> dx(call.gradients[0]->values.size());
  kernel(dx.size(), call.of_outputs[0]->values.data(), dx.data());
  add_to(dx.size(), dx.data(), call.gradients[0]->values.data());
}

void take_positive_back(const LocalCall& call) {
  add_from(call, [&](std::size_t n, const float* dy, float* dx) {
    relu_backward_input(n, call.outputs[0]->values.data(), dy, dx);
  });
}

void gelu(const LocalCall& call) {
  gelu_forward(call.inputs[0]->values.size(), call.inputs[0]->values.data(),
               call.outputs[0]->values.data());
}

void gelu_back(const LocalCall& call) {
  add_from(call, [&](std::size_t n, const float* dy, float* dx) {
    gelu_backward_input(n, call.inputs[0]->values.data(), dy, dx);
  });
}

void square(const LocalCall& call) {
  for (std::size_t i = 0; i < call.inputs[0]->values.size(); ++i) {
    const float x = call.inputs[0]->values[i];
    call.outputs[0]->values[i] = x * x;
  }
}

void square_back(const LocalCall& call) {
  for (std::size_t i = 0; i < call.gradients[0]->values.size(); ++i) {
    call.gradients[0]->values[i] += 2 * call.inputs[0]->values[i] * call.of_outputs[0]->values[i];
  }
}

/// out = combine(x, y), where dimensions of size 1 are repeated.
template <class Combine>
void of_two(const LocalCall& call, Combine combine) {
  const Shape& shape = call.outputs[0]->part.shape;
  const BroadcastPlaces x(shape_of(call.inputs[0]), shape), y(shape_of(call.inputs[1]), shape);
  for (std::size_t i = 0; i < call.outputs[0]->values.size(); ++i) {
    call.outputs[0]->values[i] =
        combine(call.inputs[0]->values[x.at(i)], call.inputs[1]->values[y.at(i)]);
  }
}

/// Adds to each input's gradient factor(x, y) times that of the output.
template <class OfX, class OfY>
void of_two_back(const LocalCall& call, OfX of_x, OfY of_y) {
  const Shape& shape = call.of_outputs[0]->part.shape;
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

float one_of(float, float) { return 1; }
float minus_one_of(float, float) { return -1; }
float first_of(float x, float) { return x; }
float second_of(float, float y) { return y; }

void add(const LocalCall& call) {
  of_two(call, [](float x, float y) { return x + y; });
}
void add_back(const LocalCall& call) { of_two_back(call, one_of, one_of); }
void subtract(const LocalCall& call) {
  of_two(call, [](float x, float y) { return x - y; });
}
void subtract_back(const LocalCall& call) { of_two_back(call, one_of, minus_one_of); }
void multiply(const LocalCall& call) {
  of_two(call, [](float x, float y) { return x * y; });
}
void multiply_back(const LocalCall& call) { of_two_back(call, second_of, first_of); }

// --- Sums ------------------------------------------------------------------------------------

/// The output with size 1 where a dimension has gone, so that its elements are those of a
/// broadcast.
Shape kept_shape(const LocalCall& call) {
  const Shape& shape = shape_of(call.inputs[0]);
  std::vector<std::int64_t> axes;
  if (!call.one.attributes.empty()) {
    axes = std::get<std::vector<std::int64_t>>(call.one.attributes[0]);
  }
  Shape kept = shape;
  for (std::size_t at = 0; at < shape.size(); ++at) {
    const auto is_it = [&](std::int64_t axis) {
      return sized(axis < 0 ? axis + small(static_cast<std::int64_t>(shape.size())) : axis) == at;
    };
    if (axes.empty() || std::any_of(axes.begin(), axes.end(), is_it)) kept[at] = 1;
  }
  return kept;
}

/// Of a mean: of the elements that this process has of each.
float share(const LocalCall& call) {
  if (call.one.rule != "mean") return 1;
  const Shape& shape = shape_of(call.inputs[0]);
  const Shape kept = kept_shape(call);
  return static_cast<float>(elements(kept, 0, kept.size())) /
         static_cast<float>(elements(shape, 0, shape.size()));
}

void sum_over(const LocalCall& call) {
  const BroadcastPlaces out(kept_shape(call), shape_of(call.inputs[0]));
  std::vector<double> sums(call.outputs[0]->values.size());
  for (std::size_t i = 0; i < call.inputs[0]->values.size(); ++i) {
    sums[out.at(i)] += static_cast<double>(call.inputs[0]->values[i]);
  }
  const float factor = share(call);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    call.outputs[0]->values[i] = static_cast<float>(sums[i]) * factor;
  }
}

void sum_over_back(const LocalCall& call) {
  const BroadcastPlaces out(kept_shape(call), shape_of(call.inputs[0]));
  const float factor = share(call);
  for (std::size_t i = 0; i < call.gradients[0]->values.size(); ++i) {
    call.gradients[0]->values[i] += factor * call.of_outputs[0]->values[out.at(i)];
  }
}

// --- Tables of rows --------------------------------------------------------------------------

TokenRange rows_here(const LocalArray& table, int most) {
  return {.first = small(table.part.offset[0]),
          .count = small(table.part.shape[0]),
          .vocabulary = most};
}

EmbeddingShape looked_up_shape(const LocalCall& call) {
  return {.rows = small(static_cast<std::int64_t>(call.inputs[0]->values.size())),
          .width = small(call.inputs[1]->part.shape[1])};
}

void look_up_rows(const LocalCall& call) {
  const auto ids = whole_numbers(*call.inputs[0]);
  const TokenRange rows = rows_here(*call.inputs[1], (1 << 24));
  look_up(looked_up_shape(call), rows, true, ids.data(), call.inputs[1]->values.data(),
          call.outputs[0]->values.data());
}

void look_up_rows_back(const LocalCall& call) {
  if (call.gradients[1] == nullptr) return;
  const auto ids = whole_numbers(*call.inputs[0]);
  look_up_backward_weight(looked_up_shape(call), rows_here(*call.inputs[1], (1 << 24)), ids.data(),
                          call.of_outputs[0]->values.data(), call.gradients[1]->values.data(),
                          nullptr);
}

// --- Norms -----------------------------------------------------------------------------------

NormShape norm_shape(const LocalCall& call) {
  const Shape& x = shape_of(call.inputs[0]);
  const std::size_t kept = call.outputs[1]->part.shape.size();
  return {.rows = small(elements(x, 0, kept)), .width = small(elements(x, kept, x.size()))};
}

void normalise(const LocalCall& call) {
  const NormShape shape = norm_shape(call);
  std::vector<float> inverse(sized(shape.rows));
  layer_norm_forward(shape, call.inputs[0]->values.data(), call.inputs[1]->values.data(),
                     call.inputs[2]->values.data(), call.outputs[0]->values.data(),
                     call.outputs[1]->values.data(), inverse.data());
  for (std::size_t row = 0; row < inverse.size(); ++row) {
    call.outputs[2]->values[row] = 1 / (inverse[row] * inverse[row]) - kLayerNormEpsilon;
  }
}

void normalise_back(const LocalCall& call) {
  const NormShape shape = norm_shape(call);
  std::vector<float> y(call.inputs[0]->values.size()), mean(sized(shape.rows)), inverse = mean;
  const float* x = call.inputs[0]->values.data();
  const float* dy = call.of_outputs[0]->values.data();
  layer_norm_forward(shape, x, call.inputs[1]->values.data(), call.inputs[2]->values.data(),
                     y.data(), mean.data(), inverse.data());
  if (call.gradients[0] != nullptr) {
    layer_norm_backward_input(shape, x, mean.data(), inverse.data(), call.inputs[1]->values.data(),
                              dy, y.data());
    add_to(y.size(), y.data(), call.gradients[0]->values.data());
  }
  std::vector<float> dscale(sized(shape.width)), dshift = dscale;
  layer_norm_backward_weight(shape, x, mean.data(), inverse.data(), dy, dscale.data(),
                             dshift.data());
  for (std::size_t place = 1; place < 3; ++place) {
    if (call.gradients[place] == nullptr) continue;
    add_to(dscale.size(), (place == 1 ? dscale : dshift).data(),
           call.gradients[place]->values.data());
  }
}

void normalise_by_size(const LocalCall& call) {
  rms_norm_forward(norm_shape(call), call.inputs[0]->values.data(), call.inputs[1]->values.data(),
                   call.outputs[0]->values.data(), call.outputs[1]->values.data());
}

void normalise_by_size_back(const LocalCall& call) {
  const NormShape shape = norm_shape(call);
  const float* x = call.inputs[0]->values.data();
  const float* inverse = call.outputs[1]->values.data();
  const float* dy = call.of_outputs[0]->values.data();
  if (call.gradients[0] != nullptr) {
    std::vector<float> dx(call.inputs[0]->values.size());
    rms_norm_backward_input(shape, x, inverse, call.inputs[1]->values.data(), dy, dx.data());
    add_to(dx.size(), dx.data(), call.gradients[0]->values.data());
  }
  if (call.gradients[1] != nullptr) {
    rms_norm_backward_weight(shape, x, inverse, dy, call.gradients[1]->values.data());
  }
}

// --- Losses ----------------------------------------------------------------------------------

LogitsPart logits_part(const LocalCall& call) {
  const spmd::LocalPart& logits = call.inputs[0]->part;
  LogitsPart part;
  part.own = {.rows = small(elements(logits.shape, 0, logits.shape.size() - 1)),
              .width = small(logits.shape.back())};
  part.first = small(logits.offset.back());
  part.member = call.classes == nullptr ? 0 : call.classes->member();
  part.members = call.classes == nullptr ? 1 : call.classes->members();
  return part;
}

void sum_in(collectives::Group* group, std::vector<float>& values) {
  if (group == nullptr) return;
  static_cast<void>(group->all_reduce(collectives::Summands(std::span(values), Numerics::Fast)));
}

void cross_entropy(const LocalCall& call) {
  const LogitsPart part = logits_part(call);
  const auto labels = whole_numbers(*call.inputs[1]);
  std::vector<float> facts(sized(std::int64_t{part.own.rows} * (part.members + 1)));
  std::vector<float> sums(sized(std::int64_t{part.own.rows} * kLossLanes));
  std::vector<double> losses(sized(part.own.rows));
  float* shares = call.outputs[0]->values.data();
  tell_logits(part, call.inputs[0]->values.data(), labels.data(), facts.data());
  sum_in(call.classes, facts);
  add_exponentials(part, call.inputs[0]->values.data(), facts.data(), shares, sums.data());
  sum_in(call.classes, sums);
  static_cast<void>(finish_cross_entropy(part, facts.data(), sums.data(), shares, losses.data()));
  std::copy(losses.begin(), losses.end(), call.outputs[1]->values.begin());
}

void cross_entropy_back(const LocalCall& call) {
  if (call.gradients[0] == nullptr || call.of_outputs[1] == nullptr) return;
  const LogitsPart part = logits_part(call);
  const auto labels = whole_numbers(*call.inputs[1]);
  const float* shares = call.outputs[0]->values.data();
  float* gradient = call.gradients[0]->values.data();
  for (int row = 0; row < part.own.rows; ++row) {
    const float scale = call.of_outputs[1]->values[sized(row)];
    for (int j = 0; j < part.own.width; ++j, ++shares, ++gradient) {
      const bool is_label = labels[sized(row)] == part.first + j;
      *gradient += scale * (is_label ? *shares - 1.0F : *shares);
    }
  }
}

constexpr LocalOperator kOperators[] = {
    {"add", add, add_back},
    {"assign", copy_elements, pass_back},
    {"cross_entropy_with_softmax", cross_entropy, cross_entropy_back},
    {"embedding", look_up_rows, look_up_rows_back},
    {"gelu", gelu, gelu_back},
    {"layer_norm", normalise, normalise_back},
    {"matmul", multiply_matrices, multiply_matrices_back},
    {"mean", sum_over, sum_over_back},
    {"multiply", multiply, multiply_back},
    {"relu", take_positive, take_positive_back},
    {"reshape", copy_elements, pass_back},
    {"rms_norm", normalise_by_size, normalise_by_size_back},
    {"square", square, square_back},
    {"subtract", subtract, subtract_back},
    {"sum", sum_over, sum_over_back},
};

[[noreturn]] void refuse(const spmd::GraphOperator& one, const std::string& why) {
  throw InputError("operator \"" + one.name + "\" (" + one.rule + "): " + why);
}

}  // namespace

const LocalOperator& local_operator(const spmd::GraphOperator& one) {
  std::string known;
  for (const LocalOperator& row : kOperators) {
    if (row.rule == one.rule) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.rule);
  }
  refuse(one, "is not computed here; these are: " + known);
}

void require_local(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  local_operator(one);
  const auto inputs = tensors_of(one.inputs);
  const auto shape = [&](std::size_t place) { return graph.tensors[*inputs[place]].shape; };
  const bool left_out = std::any_of(inputs.begin(), inputs.end(),
                                    [](const auto& tensor) { return !tensor.has_value(); });
  const auto outputs = tensors_of(one.outputs);
  const bool not_made = std::any_of(outputs.begin(), outputs.end(),
                                    [](const auto& tensor) { return !tensor.has_value(); });
  const bool too_few = outputs.size() != spmd::operator_named(one.rule).outputs.size();
  if (left_out || not_made || too_few)
    refuse(one, "is computed here with all of its tensors alone");
  if (one.rule == "matmul") {
    const spmd::Shape x = shape(0), y = shape(1);
    const bool fits = x.size() >= 2 && (y.size() == 2 || y.size() == x.size());
    const bool alike = y.size() == 2 || std::equal(x.begin(), x.end() - 2, y.begin());
    if (!fits || !alike) refuse(one, "is computed here where y has two dimensions or x's batches");
  }
  const auto says = [&](std::size_t place, const spmd::Attribute& expected) {
    return place >= one.attributes.size() || one.attributes[place] == expected;
  };
  const std::int64_t last = static_cast<std::int64_t>(shape(0).size()) - 1;
  if (one.rule == "cross_entropy_with_softmax") {
    const bool plain =
        says(0, false) && says(1, true) && (says(4, std::int64_t{-1}) || says(4, last));
    if (!plain) refuse(one, "is computed here with a label for each row, its classes last");
  }
  if (one.rule == "embedding" && !says(0, std::int64_t{-1})) {
    refuse(one, "is computed here without rows of padding");
  }
  const bool is_norm = one.rule == "layer_norm" || one.rule == "rms_norm";
  if (is_norm && !says(0, static_cast<double>(1e-5))) {
    refuse(one, "is computed here with an epsilon of 1e-5");
  }
}

}  // namespace pipewright::exec::graphs
