#include "exec/training/stage_parameters.hpp"

#include <algorithm>

namespace pipewright::exec {

StageParameters parameters_of_layers(const std::vector<std::unique_ptr<TrainableLayer>>& layers) {
  StageParameters found;
  for (const auto& layer : layers) {
    std::vector<Parameter*> own;
    layer->collect(own);
    auto& places = found.of_layer.emplace_back();
    for (Parameter* p : own) {
      const auto at = std::find(found.all.begin(), found.all.end(), p);
      places.push_back(static_cast<std::size_t>(at - found.all.begin()));
      if (at != found.all.end()) {
        found.shared_table.reset();  // both of its layers are here
        continue;
      }
      found.all.push_back(p);
      if (p->is_tied) found.shared_table = places.back();
    }
  }
  return found;
}

}  // namespace pipewright::exec
