#include "exec/layers/tensor_ops.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {

ImageOps& TensorOps::images() { throw Bug("a layer of images on a device that has none"); }

LlamaOps& TensorOps::llama() { throw Bug("a layer of Llama's style on a device that has none"); }

ExpertOps& TensorOps::experts() { throw Bug("a mixture of experts on a device that has none"); }

LatentOps& TensorOps::latent() { throw Bug("latent attention on a device that has none"); }

ContextOps& TensorOps::context() { throw Bug("parts of sequences on a device that has none"); }

void TensorOps::biased_linear_forward(const LinearShape& shape, const float* x, const float* w,
                                      const float* bias, float* y) {
  linear_forward(shape, x, w, y);
  bias_forward(shape.rows, shape.out, bias, y);
}

void TensorOps::biased_linear_backward_weight(const LinearShape& shape, const float* x,
                                              const float* dy, float* dw, float* dbias) {
  linear_backward_weight(shape, x, dy, dw);
  bias_backward_weight(shape.rows, shape.out, dy, dbias);
}

void TensorOps::linear_forward_on(const LinearShape&, const float*, const float*, float*) {
  throw Bug("a sum over ranks in exact numerics on a device that has none");
}

void TensorOps::linear_backward_input_on(const LinearShape&, const Range&, const float*,
                                         const float*, float*) {
  throw Bug("a sum over ranks in exact numerics on a device that has none");
}

void TensorOps::clear(std::size_t, float*) {
  throw Bug("a sum into zeros on a device that has none");
}

void TensorOps::look_up(const EmbeddingShape&, const TokenRange&, bool, const std::int32_t*,
                        const float*, float*) {
  throw Bug("a token table that ranks divide on a device that has none");
}

void TensorOps::add_positions(const EmbeddingShape&, const float*, float*) {
  throw Bug("a token table that ranks divide on a device that has none");
}

void TensorOps::look_up_backward_weight(const EmbeddingShape&, const TokenRange&,
                                        const std::int32_t*, const float*, float*, float*) {
  throw Bug("a token table that ranks divide on a device that has none");
}

}  // namespace pipewright::exec
