// From the description of a layer to a layer that computes: the check that widths fit, and the two
// kinds that hold others.
#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "exec/layers/chain.hpp"
#include "exec/layers/context_group.hpp"
#include "exec/layers/graph.hpp"
#include "exec/layers/image.hpp"
#include "exec/layers/leaf.hpp"
#include "exec/layers/mixture.hpp"
#include "exec/layers/on_all_rows.hpp"
#include "exec/layers/own_layer.hpp"
#include "exec/layers/tensor_group.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

class SequentialLayer final : public LayerChain {
 public:
  SequentialLayer(const std::vector<Layer>& layers, LayerSite site) {
    const std::string outer = site.path;
    const std::vector<Split> splits = splits_of(layers);
    const bool ends_divided = std::exchange(site.ends_divided, false);
    for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
      const Layer& inner = layers[static_cast<std::size_t>(i)];
      site.path = layer_path(outer, i, inner);
      site.split = splits[static_cast<std::size_t>(i)];
      site.columns = site.split == Split::Columns
                         ? column_ranges(layers, static_cast<std::size_t>(i))
                         : std::vector<Range>();
      if (ends_divided && &inner == &layers.back()) divide_end(inner, site);
      layers_.push_back(make_layer(inner, site));
      if (site.split != Split::Whole && site.tensor != nullptr)
        site.parts_in = site.split == Split::Columns ? site.tensor->size() : 1;
      site.width = width_after(inner, site.width, site.path);
    }
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override { return forward_all(std::move(x), saved); }
  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    return backward_input_all(std::move(dy), saved, wanted);
  }
};

/// shortcut(x) + inner(x); without layers in it, the shortcut is x itself. Keeps nothing itself:
/// what must stay of x the inner layers keep.
class ResidualLayer final : public TrainableLayer {
 public:
  ResidualLayer(const Layer& layer, const LayerSite& site)
      : words_in_(site.own_extent().words(site.width)),
        words_out_(site.own_extent().words(width_after(layer, site.width, site.path))),
        ops_(*site.ops),
        inner_(layer.inner, site),
        shortcut_(layer.shortcut, site_of_shortcut(site)) {}

  Saved new_saved() const override {
    Saved saved;
    saved.inner.push_back(inner_.new_saved());
    saved.inner.push_back(shortcut_.new_saved());
    return saved;
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    Buffer y = co_await inner_.forward(x, saved.inner[0]);
    y = writable(std::move(y), words_out_);
    const Buffer added = co_await shortcut_.forward(std::move(x), saved.inner[1]);
    ops_.add_to(words_out_, added.floats(), y.floats());
    co_return y;
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    Buffer dx = co_await inner_.backward_input(dy, saved.inner[0], wanted);
    const Buffer added = co_await shortcut_.backward_input(std::move(dy), saved.inner[1], wanted);
    if (!wanted) co_return Buffer();
    dx = writable(std::move(dx), words_in_);
    ops_.add_to(words_in_, added.floats(), dx.floats());
    co_return dx;
  }

  Task<void> backward_weight(Saved& saved) override {
    co_await inner_.backward_weight(saved.inner[0]);
    co_await shortcut_.backward_weight(saved.inner[1]);
  }
  Task<void> gather_kept_rows(Saved& saved) override {
    co_await inner_.gather_kept_rows(saved.inner[0]);
    co_await shortcut_.gather_kept_rows(saved.inner[1]);
  }
  void add_own_rows(Saved& saved, const Range& rows) override {
    inner_.add_own_rows(saved.inner[0], rows);
    shortcut_.add_own_rows(saved.inner[1], rows);
  }
  void collect(std::vector<Parameter*>& parameters) override {
    inner_.collect(parameters);
    shortcut_.collect(parameters);
  }
  void update_statistics() override {
    inner_.update_statistics();
    shortcut_.update_statistics();
  }
  void set_evaluating(bool evaluating) override {
    inner_.set_evaluating(evaluating);
    shortcut_.set_evaluating(evaluating);
  }
  void set_loss_share(double share) override {
    inner_.set_loss_share(share);
    shortcut_.set_loss_share(share);
  }

 private:
  static LayerSite site_of_shortcut(LayerSite site) {
    site.path += "/shortcut";
    return site;
  }

  /// The buffer itself, or a copy if somebody else reads it (relu keeps its output).
  Buffer writable(Buffer buffer, std::size_t words) {
    if (!buffer.is_shared()) return buffer;
    Buffer copy = ops_.take(words);
    ops_.copy(words, buffer.floats(), copy.floats());
    return copy;
  }

  std::size_t words_in_, words_out_;
  TensorOps& ops_;
  SequentialLayer inner_, shortcut_;
};

[[noreturn]] void refuse_layer(const std::string& path, const std::string& what) {
  throw InputError("layer \"" + path + "\": " + what);
}

void expect_floats(const std::string& path, int width) {
  if (width <= 0)
    refuse_layer(path, "it needs numbers, but token ids come in: put an embedding first");
}

void expect_width(const Layer& layer, int width, const std::string& path) {
  if (layer.in > 0 && layer.in != width) {
    refuse_layer(path, "\"in\" is " + std::to_string(layer.in) +
                           ", but the layer before it gives " + std::to_string(width) +
                           " numbers a row: make them equal");
  }
}

int width_after_chain(const std::vector<Layer>& layers, int width, const std::string& path) {
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    const Layer& inner = layers[static_cast<std::size_t>(i)];
    width = width_after(inner, width, layer_path(path, i, inner));
  }
  return width;
}

int width_after_mixture(const Layer& layer, int width, const std::string& path) {
  const ExpertChoice& choice = layer.choice;
  if (choice.experts < 1 || choice.top_k < 1 || choice.top_k > choice.experts) {
    refuse_layer(path, std::to_string(choice.top_k) + " of " + std::to_string(choice.experts) +
                           " experts cannot be chosen");
  }
  const int after = width_after_chain(layer.inner, width, path + "/experts");
  if (!layer.shared.empty() && width_after_chain(layer.shared, width, path + "/shared") != after) {
    refuse_layer(path, "the shared expert must give as many numbers a row as the others, " +
                           std::to_string(after));
  }
  return after;
}

int width_after_residual(const Layer& layer, int width, const std::string& path) {
  const int after = width_after_chain(layer.inner, width, path);
  const int added = width_after_chain(layer.shortcut, width, path + "/shortcut");
  if (after != added) {
    refuse_layer(path, "what is inside a residual gives " + std::to_string(after) +
                           " numbers a row, and what it is added to has " + std::to_string(added) +
                           ": they must be equal");
  }
  return after;
}

void check_heads(const Layer& layer, int width, const std::string& path) {
  if (layer.heads <= 0 || width % layer.heads != 0) {
    refuse_layer(path, std::to_string(layer.heads) + " heads do not divide the width " +
                           std::to_string(width));
  }
  if (layer.kv_heads < 0 || (layer.kv_heads > 0 && layer.heads % layer.kv_heads != 0)) {
    refuse_layer(path, std::to_string(layer.kv_heads) + " heads of keys do not divide " +
                           std::to_string(layer.heads) + " of queries");
  }
  if (layer.rotary_base > 0 && width / layer.heads % 2 != 0)
    refuse_layer(path, "rotary positions need heads of an even width");
}

void check_latent(const Layer& layer, const std::string& path) {
  const LatentWidths& widths = layer.latent;
  if (layer.heads < 1 || widths.key_value_rank < 1 || widths.query_rank < 0 || widths.plain < 1 ||
      widths.rotary < 1 || widths.rotary % 2 != 0 || widths.value < 1) {
    refuse_layer(path, "its heads and widths must be at least 1, and the rotary one even");
  }
}

void check_embedding(const Layer& layer, const LayerSite& site) {
  const int sequence = site.extent.sequence * site.context_place().parts;
  if (layer.positions > 0 && layer.positions < sequence) {
    refuse_layer(site.path, "it has " + std::to_string(layer.positions) +
                                " positions, but a sample has " + std::to_string(sequence) +
                                " tokens: give it at least as many positions");
  }
  if (layer.vocabulary <= 0) refuse_layer(site.path, "its vocabulary must be at least 1");
}

}  // namespace

Extent LayerSite::own_extent() const {
  const bool has_all = !divides_rows || parts_in > 1;
  return {extent.samples, has_all ? extent.sequence : extent.sequence / tensor->size()};
}

ContextPlace LayerSite::context_place() const {
  return context == nullptr ? ContextPlace{} : context->place();
}

RowParts LayerSite::row_parts() const {
  RowParts rows{.samples = extent.samples, .sequence = extent.sequence, .context = context_place()};
  if (!divides_rows) return rows;
  rows.tensor = tensor->index();
  rows.tensor_parts = tensor->size();
  return rows;
}

int width_after(const Layer& layer, int width, const std::string& path) {
  if (layer.kind == LayerKind::Embedding) {
    if (width != 0)
      refuse_layer(path, "an embedding takes token ids: it can only be the first layer");
    if (layer.out <= 0) refuse_layer(path, "\"out\" must be at least 1");
    return layer.out;
  }
  if (layer.kind == LayerKind::Sequential) return width_after_chain(layer.inner, width, path);
  expect_floats(path, width);
  switch (layer.kind) {
    case LayerKind::Linear:
      expect_width(layer, width, path);
      if (layer.out <= 0) refuse_layer(path, "\"out\" must be at least 1");
      return layer.out;
    case LayerKind::Residual:
      return width_after_residual(layer, width, path);
    case LayerKind::Graph:
      return width_in_graph(layer, static_cast<int>(layer.inner.size()) - 1, width, path);
    case LayerKind::MixtureOfExperts:
      expect_width(layer, width, path);
      return width_after_mixture(layer, width, path);
    case LayerKind::Custom:
      expect_width(layer, width, path);
      if (layer.out <= 0) refuse_layer(path, "\"out\" must be at least 1");
      return layer.out;
    case LayerKind::Conv2d:
    case LayerKind::MaxPool:
    case LayerKind::AveragePool:
    case LayerKind::GlobalAveragePool:
      expect_width(layer, width, path);
      return layer.image_out.numbers();
    case LayerKind::CausalSelfAttention:
      expect_width(layer, width, path);
      check_heads(layer, width, path);
      return width;
    case LayerKind::LatentAttention:
      expect_width(layer, width, path);
      check_latent(layer, path);
      return width;
    case LayerKind::Swiglu:
      expect_width(layer, width, path);
      if (width % 2 != 0)
        refuse_layer(path, "it halves a row, but " + std::to_string(width) + " is odd");
      return width / 2;
    default:
      expect_width(layer, width, path);
      return width;
  }
}

int width_before(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::Embedding:
      return 0;
    case LayerKind::Residual:
    case LayerKind::Sequential:
    case LayerKind::Graph:
      return layer.inner.empty() ? std::max(layer.in, layer.out)
                                 : width_before(layer.inner.front());
    default:
      return layer.in > 0 ? layer.in : layer.out;
  }
}

int width_in_front_of(const Model& model, int index) {
  if (model.layers.empty()) throw InputError("the model has no layers");
  int width = width_before(model.layers.front());
  for (int i = 0; i < index; ++i) {
    const Layer& layer = model.layers[static_cast<std::size_t>(i)];
    width = width_after(layer, width, layer_path("", i, layer));
  }
  return width;
}

std::unique_ptr<TrainableLayer> make_layer(const Layer& layer, const LayerSite& site) {
  width_after(layer, site.width, site.path);
  if (site.divides_rows && needs_all_rows(layer, site)) return make_on_all_rows(layer, site);
  switch (layer.kind) {
    case LayerKind::Linear:
      return make_linear(layer, site);
    case LayerKind::Relu:
    case LayerKind::Gelu:
      return make_activation(layer, site);
    case LayerKind::LayerNorm:
      return make_layer_norm(layer, site);
    case LayerKind::RmsNorm:
      return make_rms_norm(layer, site);
    case LayerKind::Swiglu:
      return make_swiglu(layer, site);
    case LayerKind::CausalSelfAttention:
      return make_attention(layer, site);
    case LayerKind::LatentAttention:
      return make_latent_attention(layer, site);
    case LayerKind::Embedding:
      check_embedding(layer, site);
      return make_embedding(layer, site);
    case LayerKind::Residual:
      return std::make_unique<ResidualLayer>(layer, site);
    case LayerKind::Sequential:
      return std::make_unique<SequentialLayer>(layer.inner, site);
    case LayerKind::Graph:
      return make_graph(layer, site);
    case LayerKind::Add:
    case LayerKind::Concat:
      refuse_layer(site.path, "it has several inputs, so it belongs into a graph");
    case LayerKind::Custom:
      return make_own_layer(layer, site);
    case LayerKind::MixtureOfExperts:
      return make_mixture(layer, site);
    case LayerKind::Conv2d:
      return make_conv2d(layer, site);
    case LayerKind::BatchNorm:
      return make_batch_norm(layer, site);
    case LayerKind::MaxPool:
      return make_max_pool(layer, site);
    case LayerKind::AveragePool:
    case LayerKind::GlobalAveragePool:
      return make_average_pool(layer, site);
  }
  throw Bug("a layer kind without an implementation");
}

}  // namespace pipewright::exec
