// Layers that name their inputs: reading the names, and finding the parts of such a graph that only
// one tensor enters and one leaves. Those parts are what a pipeline may be cut between, so a graph
// of layers becomes the chain that everything else reads. Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/model/model.hpp"

namespace pipewright {

/// What a layer calls the input of its whole graph.
inline constexpr std::string_view kInputName = "input";

/// "inputs": names of layers in `before`, or "input"; the layer before where it is left out. One
/// name; Add and Concat need two or more, and may not leave them out. Throws InputError.
std::vector<int> read_inputs(const JsonCursor& value, const std::vector<Layer>& before);
/// For lists whose layers may not name inputs: throws InputError for "inputs", an Add or a Concat.
void refuse_inputs(const JsonCursor& value, LayerKind kind);
/// Throws InputError if no layer reads one that is not the last.
void require_readers(const JsonCursor& list, const std::vector<Layer>& layers);
/// Adds "inputs" to the JSON of a graph's layer, by the names of `layers`.
void write_inputs(const Layer& layer, const std::vector<Layer>& layers, Json& json);

/// The layers of a graph as a chain: what one tensor enters and one leaves stands alone, with its
/// inputs left out; what lies between becomes a Graph, "first to last".
std::vector<Layer> grouped(std::vector<Layer> layers);

}  // namespace pipewright
