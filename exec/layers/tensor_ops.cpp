#include "exec/layers/tensor_ops.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec {

ImageOps& TensorOps::images() { throw Bug("a layer of images on a device that has none"); }

LlamaOps& TensorOps::llama() { throw Bug("a layer of Llama's style on a device that has none"); }

}  // namespace pipewright::exec
