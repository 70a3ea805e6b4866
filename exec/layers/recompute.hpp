// Layers one after another that keep nothing between F and I but what comes into the first: I
// begins with their forward once more, which gives the same bits. W finds what I has left, as
// everywhere.
#pragma once

#include <memory>
#include <vector>

#include "exec/layers/layer.hpp"

namespace pipewright::exec {

std::unique_ptr<TrainableLayer> make_recomputed(
    std::vector<std::unique_ptr<TrainableLayer>> layers);

}  // namespace pipewright::exec
