// The parameters of a stage's layers as a list. Plain data; the layers own the parameters.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

struct StageParameters {
  std::vector<Parameter*> all;                     // each once
  std::vector<std::size_t> sizes;                  // elements of each, once they are allocated
  std::vector<std::vector<std::size_t>> of_layer;  // places; a shared table is of two layers
  /// The place of a table that another stage holds too (exec/layers/tied_head.hpp).
  std::optional<std::size_t> shared_table;
};

StageParameters parameters_of_layers(const std::vector<std::unique_ptr<TrainableLayer>>& layers);

}  // namespace pipewright::exec
