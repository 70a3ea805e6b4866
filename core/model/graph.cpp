#include "core/model/graph.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright {

namespace {

bool joins(LayerKind kind) { return kind == LayerKind::Add || kind == LayerKind::Concat; }

int place_of(const JsonCursor& name, const std::vector<Layer>& before) {
  const std::string text = name.string();
  if (text == kInputName) return kGraphInput;
  int found = kGraphInput;
  std::vector<std::string_view> names{kInputName};
  for (std::size_t k = 0; k < before.size(); ++k) {
    names.push_back(before[k].name);
    if (before[k].name != text) continue;
    if (found != kGraphInput) {
      throw InputError(name.file(), name.pointer(),
                       "two layers have the name \"" + text + "\"; give them different ones");
    }
    found = static_cast<int>(k);
  }
  if (found == kGraphInput) {
    name.fail("\"input\" or the name of a layer that stands before" + did_you_mean(text, names));
  }
  return found;
}

/// For each layer, and first for the graph's input: the last layer that reads it.
std::vector<int> last_readers(const std::vector<Layer>& layers) {
  std::vector<int> last(layers.size() + 1, kGraphInput);
  for (std::size_t k = 0; k < layers.size(); ++k) {
    for (const int input : layers[k].inputs) {
      last[static_cast<std::size_t>(input + 1)] = static_cast<int>(k);
    }
  }
  return last;
}

/// Layers [first, end) as one; what stood before `first` is their input.
Layer as_one(std::vector<Layer> inner, int first) {
  for (Layer& layer : inner) {
    for (int& input : layer.inputs) input -= first;
  }
  if (inner.size() == 1 && !joins(inner.front().kind)) {
    inner.front().inputs.clear();
    return std::move(inner.front());
  }
  Layer graph;
  graph.kind = LayerKind::Graph;
  graph.name = inner.front().name + " to " + inner.back().name;
  graph.in = inner.front().in;
  graph.out = inner.back().out;
  graph.inner = std::move(inner);
  return graph;
}

}  // namespace

std::vector<int> read_inputs(const JsonCursor& value, const std::vector<Layer>& before) {
  const auto given = value.find("inputs");
  const bool is_join = joins(value.at("kind").string() == "add"      ? LayerKind::Add
                             : value.at("kind").string() == "concat" ? LayerKind::Concat
                                                                     : LayerKind::Linear);
  if (!given && is_join) value.at("inputs");
  if (!given) return {static_cast<int>(before.size()) - 1};
  const std::vector<JsonCursor> names = given->elements();
  if (is_join && names.size() < 2) given->fail("the names of two or more layers");
  if (!is_join && names.size() != 1) {
    given->fail("the name of one layer; an add or a concat makes one of several");
  }
  std::vector<int> inputs;
  for (const JsonCursor& name : names) inputs.push_back(place_of(name, before));
  return inputs;
}

void refuse_inputs(const JsonCursor& value, LayerKind kind) {
  if (joins(kind)) {
    throw InputError(value.file(), value.pointer() + "/kind",
                     "only the layers of a graph, and those at the top, may have several inputs; "
                     "put this one into a layer of kind \"graph\"");
  }
  if (const auto inputs = value.find("inputs")) {
    throw InputError(inputs->file(), inputs->pointer(),
                     "only the layers of a graph, and those at the top, name their inputs; put "
                     "this one into a layer of kind \"graph\", or leave the key out");
  }
}

void require_readers(const JsonCursor& list, const std::vector<Layer>& layers) {
  const std::vector<int> last = last_readers(layers);
  for (std::size_t k = 0; k + 1 < layers.size(); ++k) {
    if (last[k + 1] != kGraphInput) continue;
    throw InputError(list.file(), list.pointer() + "/" + std::to_string(k),
                     "no layer reads \"" + layers[k].name +
                         "\"; name it among the inputs of another, or leave it out");
  }
}

void write_inputs(const Layer& layer, const std::vector<Layer>& layers, Json& json) {
  Json names = Json::array();
  for (const int input : layer.inputs) {
    names.push_back(input == kGraphInput ? std::string(kInputName)
                                         : layers[static_cast<std::size_t>(input)].name);
  }
  json["inputs"] = std::move(names);
}

std::vector<Layer> grouped(std::vector<Layer> layers) {
  const std::vector<int> last = last_readers(layers);
  std::vector<Layer> chain;
  int first = 0;
  int reaches = 0;  // the last layer that reads what was made before the present one
  for (int k = 0; k < static_cast<int>(layers.size()); ++k) {
    reaches = std::max(reaches, last[static_cast<std::size_t>(k)]);
    if (reaches > k) continue;
    chain.push_back(as_one({std::make_move_iterator(layers.begin() + first),
                            std::make_move_iterator(layers.begin() + k + 1)},
                           first));
    first = k + 1;
  }
  return chain;
}

}  // namespace pipewright
