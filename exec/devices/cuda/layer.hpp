// A layer on a GPU: its F, I and W as work on a queue's computing stream. The counterpart of
// exec/layers/layer.hpp's TrainableLayer, with the same contract; the parameters are the stage's
// (exec/devices/cuda/parameters.hpp). What F keeps for I and W lies in a Saved that the caller
// owns, one for each micro-batch under way. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/model/recompute.hpp"
#include "exec/devices/cuda/parameters.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec::cuda {

struct Saved {
  std::vector<Buffer> buffers;
  std::vector<Saved> inner;
};
/// Drops what is kept, and keeps its shape.
void let_go(Saved& saved);

class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;

  virtual Saved new_saved() const = 0;
  virtual Buffer forward(Buffer x, Saved& saved) = 0;
  virtual Buffer backward_input(Buffer dy, Saved& saved, bool wanted) = 0;
  virtual void backward_weight(Saved& saved) = 0;
};

/// What a layer needs to be built.
struct DeviceSite {
  Extent extent;
  Queue* queue = nullptr;
  const Parameters* parameters = nullptr;
  std::string path;  // of the layer in the model, as on the CPU: the parameters' names begin so
  int width = 0;     // in front of it
  bool recomputes_attention = false;
  std::string table;  // what a tied head multiplies by; empty where nothing is tied

  const DeviceParameter& parameter(const std::string& name) const {
    return parameters->at(path + "/" + name);
  }
};

/// Throws InputError that names the first layer, and the ones inside it, that no GPU trains yet.
void require_layers(const Model& model);

/// The layer, which require_layers() has seen, and which fits what is in front of it.
std::unique_ptr<DeviceLayer> make_device_layer(const Layer& layer, const DeviceSite& site);
std::unique_ptr<DeviceLayer> make_device_attention(const Layer& layer, const DeviceSite& site);
/// Keeps the input of the first and computes all again before I.
std::unique_ptr<DeviceLayer> make_device_recomputed(
    std::vector<std::unique_ptr<DeviceLayer>> layers);

/// A weight matrix and its bias, as linear layers and the projections of attention use them.
class DeviceProjection {
 public:
  DeviceProjection(const DeviceSite& site, const std::string& name, int in, int out, bool bias);

  void forward(int rows, const float* x, float* y) const;
  void backward_input(int rows, const float* dy, float* dx) const;
  void backward_weight(int rows, const float* x, const float* dy) const;

 private:
  const Queue& queue_;
  int in_ = 0, out_ = 0;
  const DeviceParameter *weight_ = nullptr, *bias_ = nullptr;  // bias_ may be null
};

}  // namespace pipewright::exec::cuda
