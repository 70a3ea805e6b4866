// Layers of your own: what you write, and how a run gets to know it. A model names such a layer
// with the kind "custom" and a type; the LayerFactory that the run is given says who makes layers
// of that type. examples/own_stage is a whole program.
//
// A layer is made once for each stage that holds it, and used by one thread at a time. It keeps
// weights and nothing of a micro-batch: what F leaves for I and W lies in `kept`, which the run
// holds for each micro-batch under way, so any schedule may run W long after I. A maker may be
// called by several threads at once. A run equals its serial run if the functions are pure: the
// same arguments give the same result. InputError thrown by a maker is the user's; say what to
// change.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

/// One micro-batch in front of a layer.
struct OwnLayerInput {
  int rows = 0;              // samples · sequence
  std::span<const float> x;  // [rows][in]
  std::span<float> kept;     // [rows][kept_width()], undefined before F
};

class OwnLayer {
 public:
  virtual ~OwnLayer() = default;

  /// Floats a row that F keeps for I and W, beside x, which is always there.
  virtual int kept_width() const { return 0; }
  /// F: fills y[rows][out].
  virtual void forward(const OwnLayerInput& input, std::span<float> y) = 0;
  /// I: fills dx[rows][in] from dy[rows][out].
  virtual void backward_input(const OwnLayerInput& input, std::span<const float> dy,
                              std::span<float> dx) = 0;
  /// W: adds to the gradients of the parameters.
  virtual void backward_weight(const OwnLayerInput&, std::span<const float> /*dy*/) {}
  /// In a fixed order; they stay where they are as long as the layer lives.
  virtual std::vector<Parameter*> parameters() { return {}; }
};

/// Where a layer is going to stand.
struct OwnLayerSite {
  int in = 0, out = 0;                                           // widths
  const std::map<std::string, std::string>* settings = nullptr;  // of the model's layer
  const LayerSite* site = nullptr;

  /// A setting; `otherwise` where the model gives none.
  std::string setting(const std::string& name, const std::string& otherwise) const;
  /// A parameter of `size` numbers within ±bound, the same for equal seeds, whatever the partition;
  /// or with one value everywhere. Names are unique within a layer.
  Parameter random(const std::string& name, std::size_t size, float bound) const;
  Parameter constant(const std::string& name, std::size_t size, float value) const;
};

using OwnLayerMaker = std::function<std::unique_ptr<OwnLayer>(const OwnLayerSite&)>;

/// Who makes layers of which type. It must be there, unchanged, while stages are made.
struct LayerFactory {
  std::map<std::string, OwnLayerMaker> makers;
  /// Who makes layers of all other types, from the model's description alone; may be empty.
  std::function<std::unique_ptr<OwnLayer>(const Layer&)> others = {};
};

/// The layer of kind Custom for a stage. Throws InputError if the site's factory does not know its
/// type or the maker returns nothing, and what the maker throws.
std::unique_ptr<TrainableLayer> make_own_layer(const Layer& layer, const LayerSite& site);

}  // namespace pipewright::exec
