// What a layer costs: the formulas of docs/metrics.md, "Layer footprints".
#include <algorithm>

#include "core/base/error.hpp"
#include "core/model/model.hpp"

namespace pipewright {

namespace {

// Operations per element of what is not a matrix product (docs/metrics.md).
constexpr double kGeluForward = 8, kGeluBackward = 13;
constexpr double kNormForward = 8, kNormInputGradient = 9, kNormWeightGradient = 3;
constexpr double kBatchNormForward = 7, kBatchNormBackward = 10;
constexpr double kBatchNormSums = 4;  // a channel: of dy, of dy · normalised x, mean, variance
constexpr double kSoftmaxForward = 5, kSoftmaxBackward = 4;
constexpr double kBytesPerTokenId = 4;

/// Sizes in double while they are multiplied: a large model times a large batch passes 2^63.
struct Parts {
  double parameters = 0, forward = 0, input_gradient = 0, weight_gradient = 0;
  double saved_elements = 0, saved_bytes = 0;
};

Parts parts_of(const Layer& layer, double samples, double sequence);

Parts linear(const Layer& layer, double rows) {
  const double in = layer.in, out = layer.out, product = 2 * rows * in * out;
  const double bias = layer.bias ? 1 : 0;
  Parts parts;
  parts.parameters = layer.tied ? 0 : in * out + bias * out;  // the embedding's
  parts.forward = product + bias * rows * out;
  parts.input_gradient = product;
  parts.weight_gradient = product + bias * rows * out;
  parts.saved_elements = rows * in;
  return parts;
}

Parts attention(const Layer& layer, double rows, double sequence) {
  const double width = layer.in, heads = layer.heads;
  const double projections = 8 * rows * width * width;  // q, k, v and output
  const double products = 4 * rows * sequence * width;  // scores, and their use on v
  const double probabilities = rows * heads * sequence;
  Parts parts;
  parts.parameters = 4 * width * width + 4 * width;
  parts.forward = projections + products + kSoftmaxForward * probabilities + 4 * rows * width;
  parts.input_gradient = projections + 2 * products + kSoftmaxBackward * probabilities;
  parts.weight_gradient = projections + 4 * rows * width;
  // The input, q, k, v, the probabilities, and the input of the output projection.
  parts.saved_elements = 5 * rows * width + probabilities;
  return parts;
}

Parts embedding(const Layer& layer, double rows) {
  const double width = layer.out, positions = layer.positions > 0 ? 1 : 0;
  Parts parts;
  parts.parameters = (static_cast<double>(layer.vocabulary) + layer.positions) * width;
  parts.forward = positions * rows * width;
  parts.weight_gradient = (1 + positions) * rows * width;
  parts.saved_bytes = kBytesPerTokenId * rows;
  return parts;
}

Parts conv2d(const Layer& layer, double images) {
  const double patch = 1.0 * layer.image.channels / layer.groups * layer.window.size *
                       layer.window.size;  // numbers that make one of the output
  const double channels = layer.image_out.channels, out = images * layer.out;
  const double bias = layer.bias ? 1 : 0;
  Parts parts;
  parts.parameters = channels * patch + bias * channels;
  parts.forward = 2 * out * patch + bias * out;
  parts.input_gradient = 2 * out * patch;
  parts.weight_gradient = 2 * out * patch + bias * out;
  parts.saved_elements = images * layer.in;
  return parts;
}

Parts batch_norm(const Layer& layer, double images) {
  const double elements = images * layer.in, channels = layer.image.channels;
  Parts parts;
  parts.parameters = 2 * channels;
  parts.forward = kBatchNormForward * elements;
  parts.input_gradient = kBatchNormBackward * elements;  // with the sums that W adds
  parts.weight_gradient = kBatchNormSums * channels;
  parts.saved_elements = elements + kBatchNormSums * channels;
  return parts;
}

Parts pool(const Layer& layer, double images) {
  const double out = images * layer.out;
  const double window = layer.kind == LayerKind::GlobalAveragePool
                            ? layer.image.pixels()
                            : 1.0 * layer.window.size * layer.window.size;
  Parts parts;
  parts.forward = out * window;
  parts.input_gradient = layer.kind == LayerKind::MaxPool ? out : out * window;
  if (layer.kind == LayerKind::MaxPool) parts.saved_bytes = kBytesPerTokenId * out;
  return parts;
}

Parts custom(const Layer& layer, double rows) {
  Parts parts;
  parts.parameters = static_cast<double>(layer.custom.weights);
  parts.forward = parts.input_gradient = rows * layer.custom.operations;
  if (layer.custom.weights > 0) parts.weight_gradient = parts.forward;
  parts.saved_elements = rows * layer.in;
  return parts;
}

void add_all(const std::vector<Layer>& layers, double samples, double sequence, Parts& sum) {
  for (const Layer& inner : layers) {
    const Parts one = parts_of(inner, samples, sequence);
    sum.parameters += one.parameters;
    sum.forward += one.forward;
    sum.input_gradient += one.input_gradient;
    sum.weight_gradient += one.weight_gradient;
    sum.saved_elements += one.saved_elements;
    sum.saved_bytes += one.saved_bytes;
  }
}

Parts group(const Layer& layer, double samples, double sequence) {
  Parts sum;
  add_all(layer.inner, samples, sequence, sum);
  add_all(layer.shortcut, samples, sequence, sum);
  if (layer.kind == LayerKind::Residual) {
    sum.forward += samples * sequence * layer.out;
    sum.input_gradient += samples * sequence * layer.out;
  }
  return sum;
}

Parts parts_of(const Layer& layer, double samples, double sequence) {
  const double rows = samples * sequence, elements = rows * layer.in;
  Parts parts;
  switch (layer.kind) {
    case LayerKind::Linear:
      return linear(layer, rows);
    case LayerKind::CausalSelfAttention:
      return attention(layer, rows, sequence);
    case LayerKind::Embedding:
      return embedding(layer, rows);
    case LayerKind::Residual:
    case LayerKind::Sequential:
    case LayerKind::Graph:
      return group(layer, samples, sequence);
    case LayerKind::Relu:
      parts.forward = parts.input_gradient = elements;
      parts.saved_elements = elements;
      return parts;
    case LayerKind::Gelu:
      parts.forward = kGeluForward * elements;
      parts.input_gradient = kGeluBackward * elements;
      parts.saved_elements = elements;
      return parts;
    case LayerKind::LayerNorm:
      parts.parameters = 2.0 * layer.in;
      parts.forward = kNormForward * elements;
      parts.input_gradient = kNormInputGradient * elements;
      parts.weight_gradient = kNormWeightGradient * elements;
      parts.saved_elements = elements + rows;  // normalised rows, and one scale a row
      return parts;
    case LayerKind::Custom:
      return custom(layer, rows);
    case LayerKind::Add:
      // As many additions as there are inputs but one; the gradient goes to all as it is.
      parts.forward = rows * layer.out * (static_cast<double>(layer.inputs.size()) - 1);
      return parts;
    case LayerKind::Concat:
      return parts;
    case LayerKind::Conv2d:
      return conv2d(layer, rows);
    case LayerKind::BatchNorm:
      return batch_norm(layer, rows);
    case LayerKind::MaxPool:
    case LayerKind::AveragePool:
    case LayerKind::GlobalAveragePool:
      return pool(layer, rows);
  }
  throw_bug(__FILE__, __LINE__, "a layer has no kind");
}

std::int64_t whole(double amount) {
  // 1 PiB: beyond every machine, and sums over thousands of layers still fit.
  constexpr double kMost = 0x1p50;
  return static_cast<std::int64_t>(std::min(amount, kMost));
}

}  // namespace

LayerFootprint footprint(const Layer& layer, const Model& model, int samples) {
  const Parts parts = parts_of(layer, samples, model.sequence);
  const double rows = static_cast<double>(samples) * model.sequence;
  LayerFootprint result;
  result.parameters = whole(parts.parameters);
  result.forward_flops = parts.forward;
  result.input_gradient_flops = parts.input_gradient;
  result.weight_gradient_flops = parts.weight_gradient;
  result.saved_bytes = whole(parts.saved_elements * model.bytes_per_element + parts.saved_bytes);
  result.output_bytes = whole(rows * layer.out * model.bytes_per_element);
  return result;
}

}  // namespace pipewright
