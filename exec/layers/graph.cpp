#include "exec/layers/graph.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "exec/layers/tensor_ops.hpp"

namespace pipewright::exec {
namespace {

bool joins(LayerKind kind) { return kind == LayerKind::Add || kind == LayerKind::Concat; }

std::vector<int> widths_in_graph(const Layer& graph, int count, int width,
                                 const std::string& path) {
  const auto refuse = [&](int k, const std::string& why) {
    const Layer& layer = graph.inner[static_cast<std::size_t>(k)];
    throw InputError("layer \"" + layer_path(path, k, layer) + "\": " + why);
  };
  std::vector<int> widths{width};  // of the graph's input, then after each layer
  for (int k = 0; k < count; ++k) {
    const Layer& layer = graph.inner[static_cast<std::size_t>(k)];
    if (layer.inputs.empty()) refuse(k, "it names no input");
    std::vector<int> in;
    for (const int input : layer.inputs) {
      if (input < kGraphInput || input >= k) refuse(k, "it reads a layer that is not before it");
      in.push_back(widths[static_cast<std::size_t>(input + 1)]);
    }
    int after = in.front();
    if (layer.kind == LayerKind::Concat) {
      for (std::size_t i = 1; i < in.size(); ++i) after += in[i];
    } else if (layer.kind == LayerKind::Add) {
      if (std::count(in.begin(), in.end(), in.front()) != static_cast<long>(in.size())) {
        refuse(k, "it adds inputs of different widths");
      }
    } else {
      after = width_after(layer, in.front(), layer_path(path, k, layer));
    }
    widths.push_back(after);
  }
  return widths;
}

class GraphLayer final : public TrainableLayer {
 public:
  GraphLayer(const Layer& graph, LayerSite site) : extent_(site.extent), ops_(*site.ops) {
    const int count = static_cast<int>(graph.inner.size());
    const std::string outer = site.path;
    widths_ = widths_in_graph(graph, count, site.width, outer);
    for (int k = 0; k < count; ++k) {
      const Layer& layer = graph.inner[static_cast<std::size_t>(k)];
      Node node{nullptr, layer.kind, layer.inputs};
      site.path = layer_path(outer, k, layer);
      site.width = width_of(layer.inputs.front());
      if (!joins(layer.kind)) node.layer = make_layer(layer, site);
      nodes_.push_back(std::move(node));
    }
  }

  Saved new_saved() const override {
    Saved saved;
    for (const Node& node : nodes_) {
      saved.inner.push_back(node.layer == nullptr ? Saved() : node.layer->new_saved());
    }
    return saved;
  }

  Task<Buffer> forward(Buffer x, Saved& saved) override {
    std::vector<Buffer> made(nodes_.size() + 1);  // the input, then what each layer gives
    made[0] = std::move(x);
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      const Node& node = nodes_[k];
      if (node.layer != nullptr) {
        Buffer in = made[place(node.inputs.front())];
        made[k + 1] = co_await node.layer->forward(std::move(in), saved.inner[k]);
      } else {
        made[k + 1] = node.kind == LayerKind::Add ? sum(node, made)
                                                  : side_by_side(node, made, widths_[k + 1]);
      }
    }
    co_return std::move(made.back());
  }

  Task<Buffer> backward_input(Buffer dy, Saved& saved, bool wanted) override {
    std::vector<Buffer> gradients(nodes_.size() + 1);
    gradients.back() = std::move(dy);
    for (std::size_t k = nodes_.size(); k-- > 0;) {
      const Node& node = nodes_[k];
      Buffer gradient = std::move(gradients[k + 1]);
      if (node.layer != nullptr) {
        const int input = node.inputs.front();
        const bool asked = wanted || input != kGraphInput;
        Buffer dx = co_await node.layer->backward_input(std::move(gradient), saved.inner[k], asked);
        if (asked) add(std::move(dx), input, gradients);
      } else if (node.kind == LayerKind::Add) {
        for (const int input : node.inputs) add(gradient, input, gradients);
      } else {
        split(node, gradient, widths_[k + 1], gradients);
      }
    }
    if (!wanted) co_return Buffer();
    co_return std::move(gradients.front());
  }

  Task<void> backward_weight(Saved& saved) override {
    for (std::size_t k = nodes_.size(); k-- > 0;) {
      if (nodes_[k].layer != nullptr) co_await nodes_[k].layer->backward_weight(saved.inner[k]);
    }
  }

  void collect(std::vector<Parameter*>& parameters) override {
    for (const Node& node : nodes_) {
      if (node.layer != nullptr) node.layer->collect(parameters);
    }
  }
  void update_statistics() override {
    for (const Node& node : nodes_) {
      if (node.layer != nullptr) node.layer->update_statistics();
    }
  }
  void set_evaluating(bool evaluating) override {
    for (const Node& node : nodes_) {
      if (node.layer != nullptr) node.layer->set_evaluating(evaluating);
    }
  }
  void set_loss_share(double share) override {
    for (const Node& node : nodes_) {
      if (node.layer != nullptr) node.layer->set_loss_share(share);
    }
  }

 private:
  struct Node {
    std::unique_ptr<TrainableLayer> layer;  // null: an Add or a Concat
    LayerKind kind;
    std::vector<int> inputs;
  };

  static std::size_t place(int input) { return static_cast<std::size_t>(input + 1); }
  int width_of(int input) const { return widths_[place(input)]; }

  Buffer copy_of(const Buffer& buffer, std::size_t words) {
    Buffer copy = ops_.take(words);
    ops_.copy(words, buffer.floats(), copy.floats());
    return copy;
  }

  Buffer sum(const Node& node, const std::vector<Buffer>& made) {
    const std::size_t size = extent_.words(width_of(node.inputs.front()));
    Buffer y = copy_of(made[place(node.inputs.front())], size);
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      ops_.add_to(size, made[place(node.inputs[i])].floats(), y.floats());
    }
    return y;
  }

  /// Calls part(number of the input, where its part of a row begins, its width) for each input.
  template <class Part>
  void each_part(const Node& node, Part part) const {
    int at = 0;
    for (const int input : node.inputs) {
      const int width = width_of(input);
      part(input, at, width);
      at += width;
    }
  }

  Buffer side_by_side(const Node& node, const std::vector<Buffer>& made, int width) {
    Buffer y = ops_.take(extent_.words(width));
    each_part(node, [&](int input, int at, int part) {
      ops_.copy_columns(extent_.rows(), part, made[place(input)].floats(), part,
                        ops_.at(y.floats(), static_cast<std::size_t>(at)), width);
    });
    return y;
  }

  void split(const Node& node, const Buffer& gradient, int width, std::vector<Buffer>& gradients) {
    each_part(node, [&](int input, int at, int part) {
      Buffer dx = ops_.take(extent_.words(part));
      ops_.copy_columns(extent_.rows(), part,
                        ops_.at(gradient.floats(), static_cast<std::size_t>(at)), width,
                        dx.floats(), part);
      add(std::move(dx), input, gradients);
    });
  }

  void add(Buffer dx, int input, std::vector<Buffer>& gradients) {
    Buffer& sum = gradients[place(input)];
    if (!sum) {
      sum = std::move(dx);
      return;
    }
    const std::size_t size = extent_.words(width_of(input));
    if (sum.is_shared()) sum = copy_of(sum, size);
    ops_.add_to(size, dx.floats(), sum.floats());
  }

  Extent extent_;
  TensorOps& ops_;
  std::vector<int> widths_;
  std::vector<Node> nodes_;
};

}  // namespace

std::unique_ptr<TrainableLayer> make_graph(const Layer& layer, const LayerSite& site) {
  return std::make_unique<GraphLayer>(layer, site);
}

int width_in_graph(const Layer& graph, int index, int width, const std::string& path) {
  return widths_in_graph(graph, index + 1, width, path).back();
}

}  // namespace pipewright::exec
