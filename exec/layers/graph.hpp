// The layer that holds a graph of others (core/model/graph.hpp): each takes what it names.
#pragma once

#include <memory>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// Gradients of a tensor that several layers read are added from the last reader to the first, so
/// the same graph gives the same bits. Throws InputError as make_layer() does.
std::unique_ptr<TrainableLayer> make_graph(const Layer& layer, const LayerSite& site);

/// Width after the inner layer `index` of a graph that has `width` in front; kGraphInput: that.
/// Throws InputError if what is added is not equally wide, or a layer names no inner layer before
/// it.
int width_in_graph(const Layer& graph, int index, int width, const std::string& path);

}  // namespace pipewright::exec
