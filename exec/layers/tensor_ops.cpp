#include "exec/layers/tensor_ops.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {

namespace {

[[noreturn]] void throw_no_llama() { throw Bug("a layer of Llama's on a device that has none"); }

}  // namespace

void TensorOps::rms_norm_forward(const NormShape&, const float*, const float*, float*, float*) {
  throw_no_llama();
}
void TensorOps::rms_norm_backward_input(const NormShape&, const float*, const float*, const float*,
                                        const float*, float*) {
  throw_no_llama();
}
void TensorOps::rms_norm_backward_weight(const NormShape&, const float*, const float*, const float*,
                                         float*) {
  throw_no_llama();
}
void TensorOps::swiglu_forward(int, int, const float*, float*) { throw_no_llama(); }
void TensorOps::swiglu_backward_input(int, int, const float*, const float*, float*) {
  throw_no_llama();
}
void TensorOps::rotate(const RotaryShape&, bool, float*) { throw_no_llama(); }

ImageOps& TensorOps::images() { throw Bug("a layer of images on a device that has none"); }

}  // namespace pipewright::exec
