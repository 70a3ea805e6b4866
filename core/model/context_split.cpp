#include "core/model/context_split.hpp"

#include <numeric>
#include <vector>

#include "core/model/find_layer.hpp"

namespace pipewright {
namespace {

/// The path and kind of the first layer that is `such`; "" if none is.
std::string first_layer(const std::vector<Layer>& chain, bool (*such)(LayerKind),
                        const std::string& outer = "") {
  for (std::size_t k = 0; k < chain.size(); ++k) {
    const Layer& layer = chain[k];
    const std::string path = layer_path(outer, static_cast<int>(k), layer);
    if (such(layer.kind)) return "\"" + path + "\" (" + std::string(to_string(layer.kind)) + ")";
    for (const std::vector<Layer>* inner : {&layer.inner, &layer.shortcut, &layer.shared}) {
      if (std::string found = first_layer(*inner, such, path); !found.empty()) return found;
    }
  }
  return "";
}

bool needs_whole_sequences(LayerKind kind) { return !divides_sequences(kind); }
bool needs_gathered_keys(LayerKind kind) { return kind == LayerKind::LatentAttention; }

}  // namespace

bool takes_some_rows(LayerKind kind) {
  switch (kind) {
    case LayerKind::Linear:
    case LayerKind::Relu:
    case LayerKind::Gelu:
    case LayerKind::Swiglu:
    case LayerKind::LayerNorm:
    case LayerKind::RmsNorm:
    case LayerKind::CausalSelfAttention:
    case LayerKind::Embedding:
    case LayerKind::Residual:
    case LayerKind::Sequential:
      return true;
    default:
      return false;
  }
}

bool divides_sequences(LayerKind kind) {
  return kind == LayerKind::MixtureOfExperts || kind == LayerKind::LatentAttention ||
         takes_some_rows(kind);
}

std::string context_fault(const Model& model, int ranks) {
  if (ranks == 1) return "";
  if (const std::string layer = first_layer(model.layers, needs_whole_sequences); !layer.empty())
    return "context parallelism does not divide the rows of layer " + layer + " yet; take cp 1";
  const int chunks = 2 * ranks, sequence = model.sequence;
  if (sequence % chunks == 0) return "";
  const int below = sequence / chunks * chunks, above = below + chunks;
  return "cp " + std::to_string(ranks) + " gives each rank 2 of " + std::to_string(chunks) +
         " chunks of a sample, and its " + std::to_string(sequence) +
         " tokens do not divide into them; the nearest lengths that do are " +
         (below > 0 ? std::to_string(below) + " and " : "") + std::to_string(above);
}

std::string context_fault(const Model& model, const StageDivision& ranks) {
  if (ranks.context == 1) return "";
  const std::string fault = context_fault(model, ranks.context);
  if (!fault.empty()) return fault;
  if (ranks.ring) {
    if (const std::string layer = first_layer(model.layers, needs_gathered_keys); !layer.empty())
      return "keys and values do not go round the ranks along cp (cp_comm_type p2p) in layer " +
             layer + " yet; take cp_comm_type all_gather";
  }
  const int own = own_sequence(model.sequence, ranks.context);
  if (!ranks.rows || own % ranks.tensor == 0) return "";
  const int both = std::lcm(2 * ranks.context, ranks.context * ranks.tensor);
  const int below = model.sequence / both * both, above = below + both;
  return "cp " + std::to_string(ranks.context) + " gives each rank " + std::to_string(own) +
         " tokens of a sample, which sequence parallelism with tp " + std::to_string(ranks.tensor) +
         " does not divide; the nearest lengths of a sample that both divide are " +
         (below > 0 ? std::to_string(below) + " and " : "") + std::to_string(above);
}

}  // namespace pipewright
