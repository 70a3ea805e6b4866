#include "core/model/tie.hpp"

#include <algorithm>
#include <string>

#include "core/base/error.hpp"
#include "core/model/layers.hpp"

namespace pipewright {
namespace {

/// The tied layers among these and inside them.
void collect_tied(const std::vector<Layer>& layers, std::vector<const Layer*>& found) {
  for (const Layer& layer : layers) {
    if (layer.tied) found.push_back(&layer);
    collect_tied(layer.inner, found);
    collect_tied(layer.shortcut, found);
    collect_tied(layer.shared, found);
  }
}

std::vector<const Layer*> tied_layers(const std::vector<Layer>& layers) {
  std::vector<const Layer*> found;
  collect_tied(layers, found);
  return found;
}

}  // namespace

bool holds_tied(const Layer& layer) {
  const auto any = [](const std::vector<Layer>& layers) {
    return std::any_of(layers.begin(), layers.end(), holds_tied);
  };
  return layer.tied || any(layer.inner) || any(layer.shortcut) || any(layer.shared);
}

std::optional<Tie> tie_of(const Model& model) {
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    if (!holds_tied(model.layers[l])) continue;
    const Layer& table = first_leaf(model.layers.front());
    return Tie{.embedding = 0,
               .head = static_cast<int>(l),
               .weights = static_cast<std::int64_t>(table.vocabulary) * table.out};
  }
  return std::nullopt;
}

void require_tie_fits(const JsonCursor& list, const Model& model) {
  const std::vector<const Layer*> tied = tied_layers(model.layers);
  if (tied.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw InputError(list.file(), list.pointer(), why);
  };
  if (tied.size() > 1)
    refuse("expected one tied layer at most, found " + std::to_string(tied.size()));
  const Layer& table = first_leaf(model.layers.front());
  if (table.kind != LayerKind::Embedding)
    refuse("a tied layer uses the embedding's table, but the first layer is no embedding");
  const Layer& head = *tied.front();
  if (head.in == table.out && head.out == table.vocabulary) return;
  refuse("a tied layer goes from the embedding's width to its vocabulary (" +
         std::to_string(table.out) + " to " + std::to_string(table.vocabulary) + "), found " +
         std::to_string(head.in) + " to " + std::to_string(head.out));
}

}  // namespace pipewright
