// Matrix products, canonical.
#include <algorithm>

#include "exec/devices/cpu/kernels/gemm.hpp"
#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

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
  const spmd::Shape &x = shape_of(call.inputs[0]), &y = shape_of(call.inputs[1]);
  const spmd::Operands operands = operands_of(call);
  Product product{.trans_x = operands.boolean("trans_x"), .trans_y = operands.boolean("trans_y")};
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

const char* products_refusal(const spmd::OperatorGraph& graph, const spmd::GraphOperator& one) {
  const spmd::Operands operands = operands_of(graph, one);
  const spmd::Shape &x = operands.shape(0), &y = operands.shape(1);
  const bool fits = x.size() >= 2 && (y.size() == 2 || y.size() == x.size());
  const bool alike = y.size() == 2 || std::equal(x.begin(), x.end() - 2, y.begin());
  return fits && alike ? nullptr : "where y has two dimensions or x's batches";
}

}  // namespace

std::vector<LocalOperator> product_kernels() {
  return {{.rule = "matmul",
           .forward = multiply_matrices,
           .backward = multiply_matrices_back,
           .refusal = products_refusal}};
}

}  // namespace pipewright::exec::graphs
