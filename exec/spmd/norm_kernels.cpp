// Norms of the last dimensions.
#include "exec/layers/ops.hpp"
#include "exec/spmd/local_kernels.hpp"

namespace pipewright::exec::graphs {
namespace {

NormShape norm_shape(const LocalCall& call) {
  const spmd::Shape& x = shape_of(call.inputs[0]);
  const std::size_t kept = operands_of(call).axis("begin_norm_axis", x.size());
  return {.rows = small(elements(x, 0, kept)), .width = small(elements(x, kept, x.size()))};
}

void normalise(const LocalCall& call) {
  const NormShape shape = norm_shape(call);
  std::vector<float> mean(sized(shape.rows)), inverse = mean;
  layer_norm_forward(shape, call.inputs[0]->values.data(), call.inputs[1]->values.data(),
                     call.inputs[2]->values.data(), call.outputs[0]->values.data(), mean.data(),
                     inverse.data());
  if (LocalArray* means = output_of(call, 1)) means->values = mean;
  LocalArray* variances = output_of(call, 2);
  for (std::size_t row = 0; variances != nullptr && row < inverse.size(); ++row) {
    variances->values[row] = 1 / (inverse[row] * inverse[row]) - kLayerNormEpsilon;
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
  const NormShape shape = norm_shape(call);
  std::vector<float> inverse(sized(shape.rows));
  rms_norm_forward(shape, call.inputs[0]->values.data(), call.inputs[1]->values.data(),
                   call.outputs[0]->values.data(), inverse.data());
  if (LocalArray* kept = output_of(call, 1)) kept->values = inverse;
}

void normalise_by_size_back(const LocalCall& call) {
  const NormShape shape = norm_shape(call);
  const float* x = call.inputs[0]->values.data();
  const float* dy = call.of_outputs[0]->values.data();
  std::vector<float> dx(call.inputs[0]->values.size()), inverse(sized(shape.rows));
  rms_norm_forward(shape, x, call.inputs[1]->values.data(), dx.data(), inverse.data());
  if (call.gradients[0] != nullptr) {
    rms_norm_backward_input(shape, x, inverse.data(), call.inputs[1]->values.data(), dy, dx.data());
    add_to(dx.size(), dx.data(), call.gradients[0]->values.data());
  }
  if (call.gradients[1] != nullptr) {
    rms_norm_backward_weight(shape, x, inverse.data(), dy, call.gradients[1]->values.data());
  }
}

const char* norm_refusal(const spmd::OperatorGraph&, const spmd::GraphOperator& one) {
  const bool is_plain = one.attributes.empty() || one.attributes.front() == spmd::Attribute(1e-5);
  return is_plain ? nullptr : "with an epsilon of 1e-5";
}

LocalOperator row_of(std::string_view rule, std::size_t inputs, void (*forward)(const LocalCall&),
                     void (*backward)(const LocalCall&)) {
  return {.rule = rule,
          .forward = forward,
          .backward = backward,
          .differentiated = 0,
          .inputs = inputs,
          .outputs = 1,
          .refusal = norm_refusal};
}

}  // namespace

std::vector<LocalOperator> norm_kernels() {
  return {row_of("fused_rms_norm", 2, normalise_by_size, normalise_by_size_back),
          row_of("layer_norm", 3, normalise, normalise_back),
          row_of("rms_norm", 2, normalise_by_size, normalise_by_size_back)};
}

}  // namespace pipewright::exec::graphs
