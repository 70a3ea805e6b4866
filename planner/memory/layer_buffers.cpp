#include "planner/memory/layer_buffers.hpp"

#include <algorithm>
#include <utility>

#include "core/model/image.hpp"

namespace pipewright::planner {
namespace {

/// Places of what attention keeps: as exec/layers/attention.cpp.
enum AttentionSlot : std::size_t { kX, kQkv, kProbabilities, kContext, kDqkv, kDy, kSlots };

}  // namespace

Held LayerBuffers::writable(Held held, std::int64_t width) {
  return is_shared(held) ? rows_of(width) : std::move(held);
}

/// The columns of as many images as make a product at least so wide, and what is gathered of
/// several (exec/devices/cpu/kernels/convolution.cpp).
Held LayerBuffers::scratch_of(const Layer& convolution) {
  constexpr std::int64_t kLeastColumns = 256;
  const std::int64_t pixels = convolution.image_out.pixels();
  const std::int64_t patch = std::int64_t{convolution.image.channels} / convolution.groups *
                             convolution.window.size * convolution.window.size;
  const std::int64_t together =
      std::clamp<std::int64_t>(kLeastColumns / std::max<std::int64_t>(1, pixels), 1, rows_);
  const std::int64_t filters = convolution.image_out.channels / convolution.groups;
  return elements(pixels * together * (patch + (together > 1 ? filters : 0)));
}

// --- F ---

Held LayerBuffers::forward(const Layer& layer, Held x, Kept& kept, LayerRecompute what) {
  switch (layer.kind) {
    case LayerKind::Sequential:
      return forward_all(layer.inner, std::move(x), kept, what);
    case LayerKind::Residual:
      return forward_residual(layer, std::move(x), kept, what);
    case LayerKind::Graph:
      return forward_graph(layer, std::move(x), kept, what);
    case LayerKind::CausalSelfAttention:
      return forward_attention(layer, std::move(x), kept, what);
    default:
      break;
  }
  Held y = rows_of(layer.out);
  switch (layer.kind) {
    case LayerKind::Relu:
      kept.held = {y};
      break;
    case LayerKind::LayerNorm:
      kept.held = {std::move(x), rows_of(1), rows_of(1)};
      break;
    case LayerKind::BatchNorm:
      if (evaluates_) break;
      kept.held = {std::move(x), elements(layer.image.channels), elements(layer.image.channels)};
      break;
    case LayerKind::MaxPool:
      kept.held = {hold(meter_, rows_ * layer.out * 4)};  // places
      break;
    case LayerKind::AveragePool:
    case LayerKind::GlobalAveragePool:
      break;
    case LayerKind::Conv2d: {
      const Held scratch = scratch_of(layer);
      kept.held = {std::move(x)};
      break;
    }
    default:
      kept.held = {std::move(x)};
  }
  return y;
}

Held LayerBuffers::forward_all(const std::vector<Layer>& layers, Held x, Kept& kept,
                               LayerRecompute what) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    x = forward(layers[i], std::move(x), kept.of_inner(i), what);
  return x;
}

void LayerBuffers::attend(const Layer& layer, Kept& kept) {
  kept.held[kProbabilities] = elements(rows_ * layer.heads * sequence_);
  kept.held[kContext] = rows_of(layer.in);
}

Held LayerBuffers::forward_attention(const Layer& layer, Held x, Kept& kept, LayerRecompute what) {
  kept.held.assign(kSlots, nullptr);
  kept.held[kQkv] = rows_of(3 * std::int64_t{layer.in});
  attend(layer, kept);
  Held y = rows_of(layer.out);
  kept.held[kX] = std::move(x);
  if (what == LayerRecompute::Attention) kept.held[kProbabilities] = kept.held[kContext] = nullptr;
  return y;
}

Held LayerBuffers::forward_residual(const Layer& layer, Held x, Kept& kept, LayerRecompute what) {
  kept.of_inner(1);
  Held y = writable(forward_all(layer.inner, x, kept.inner[0], what), layer.out);
  forward_all(layer.shortcut, std::move(x), kept.inner[1], what);
  return y;
}

Held LayerBuffers::forward_graph(const Layer& layer, Held x, Kept& kept, LayerRecompute what) {
  std::vector<Held> made{std::move(x)};  // the input, then what each layer gives
  for (std::size_t k = 0; k < layer.inner.size(); ++k) {
    const Layer& inner = layer.inner[k];
    const bool joins = inner.kind == LayerKind::Add || inner.kind == LayerKind::Concat;
    Kept& own = kept.of_inner(k);
    made.push_back(joins ? rows_of(inner.out)
                         : forward(inner, made[static_cast<std::size_t>(inner.inputs.front() + 1)],
                                   own, what));
  }
  return made.back();
}

// --- I ---

Held LayerBuffers::backward_input(const Layer& layer, Held dy, Kept& kept, bool wanted,
                                  LayerRecompute what) {
  switch (layer.kind) {
    case LayerKind::Sequential:
      return backward_all(layer.inner, std::move(dy), kept, wanted, what);
    case LayerKind::Residual:
      return backward_residual(layer, std::move(dy), kept, wanted, what);
    case LayerKind::Graph:
      return backward_graph(layer, std::move(dy), kept, wanted, what);
    case LayerKind::CausalSelfAttention:
      return backward_attention(layer, std::move(dy), kept, wanted, what);
    case LayerKind::Relu:
    case LayerKind::Gelu: {
      const auto done = std::exchange(kept.held, {});
      return wanted ? writable(std::move(dy), layer.in) : nullptr;
    }
    case LayerKind::BatchNorm: {
      Held dx = wanted ? (is_shared(dy) ? rows_of(layer.in) : dy) : nullptr;
      kept.held.push_back(elements(2 * std::int64_t{layer.image.channels}));
      kept.held.front() = nullptr;
      return dx;
    }
    case LayerKind::MaxPool:
    case LayerKind::AveragePool:
    case LayerKind::GlobalAveragePool: {
      const auto done = std::exchange(kept.held, {});
      return wanted ? rows_of(layer.in) : nullptr;
    }
    default: {
      Held dx = wanted && layer.kind != LayerKind::Embedding ? rows_of(layer.in) : nullptr;
      if (wanted && layer.kind == LayerKind::Conv2d) scratch_of(layer);
      kept.held.push_back(std::move(dy));
      return dx;
    }
  }
}

Held LayerBuffers::backward_all(const std::vector<Layer>& layers, Held dy, Kept& kept, bool wanted,
                                LayerRecompute what) {
  for (std::size_t i = layers.size(); i-- > 0;)
    dy = backward_input(layers[i], std::move(dy), kept.of_inner(i), wanted || i > 0, what);
  return dy;
}

Held LayerBuffers::backward_attention(const Layer& layer, Held dy, Kept& kept, bool wanted,
                                      LayerRecompute what) {
  if (what == LayerRecompute::Attention) attend(layer, kept);
  Held dcontext = rows_of(layer.in);
  kept.held[kDqkv] = rows_of(3 * std::int64_t{layer.in});
  const Held scratch = elements(sequence_ * sequence_);
  kept.held[kQkv] = kept.held[kProbabilities] = nullptr;
  kept.held[kDy] = std::move(dy);
  return wanted ? dcontext : nullptr;
}

Held LayerBuffers::backward_residual(const Layer& layer, Held dy, Kept& kept, bool wanted,
                                     LayerRecompute what) {
  Held dx = backward_all(layer.inner, dy, kept.of_inner(0), wanted, what);
  const Held added = backward_all(layer.shortcut, std::move(dy), kept.of_inner(1), wanted, what);
  return wanted ? writable(std::move(dx), layer.in) : nullptr;
}

void LayerBuffers::add_gradient(Held dx, Held& sum, std::int64_t width) {
  if (sum == nullptr) {
    sum = std::move(dx);
  } else if (is_shared(sum)) {
    sum = rows_of(width);
  }
}

Held LayerBuffers::backward_graph(const Layer& layer, Held dy, Kept& kept, bool wanted,
                                  LayerRecompute what) {
  const auto width_of = [&](int input) {
    return input == kGraphInput ? layer.in : layer.inner[static_cast<std::size_t>(input)].out;
  };
  std::vector<Held> gradients(layer.inner.size() + 1);
  gradients.back() = std::move(dy);
  for (std::size_t k = layer.inner.size(); k-- > 0;) {
    const Layer& inner = layer.inner[k];
    Held gradient = std::exchange(gradients[k + 1], nullptr);
    const auto add = [&](int input, Held dx) {
      add_gradient(std::move(dx), gradients[static_cast<std::size_t>(input + 1)], width_of(input));
    };
    if (inner.kind == LayerKind::Add) {
      for (const int input : inner.inputs) add(input, gradient);
    } else if (inner.kind == LayerKind::Concat) {
      for (const int input : inner.inputs) add(input, rows_of(width_of(input)));
    } else {
      const int input = inner.inputs.front();
      const bool asked = wanted || input != kGraphInput;
      Held dx = backward_input(inner, std::move(gradient), kept.of_inner(k), asked, what);
      if (asked) add(input, std::move(dx));
    }
  }
  return wanted ? gradients.front() : nullptr;
}

// --- W ---

/// All is let go of, layer by layer; a convolution lays out its columns again.
void LayerBuffers::backward_weight(const Layer& layer, Kept& kept) {
  for (std::size_t i = layer.inner.size(); i-- > 0;) {
    const bool is_residual = layer.kind == LayerKind::Residual;
    backward_weight(layer.inner[i], is_residual ? kept.of_inner(0).of_inner(i) : kept.of_inner(i));
  }
  for (std::size_t i = layer.shortcut.size(); i-- > 0;)
    backward_weight(layer.shortcut[i], kept.of_inner(1).of_inner(i));
  if (layer.kind == LayerKind::Conv2d) scratch_of(layer);
  kept.let_go();
}

}  // namespace pipewright::planner
