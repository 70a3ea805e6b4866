// Synthetic images to learn from where no file of them is given. Pure functions of the seed.
#pragma once

#include <memory>

#include "core/model/model.hpp"
#include "exec/data/data.hpp"

namespace pipewright::exec {

/// Whether the model begins with an image layer and ends with classes.
bool classifies_images(const Model& model);

/// Images of stripes, with noise: the class says in which direction they run, and beyond eight
/// classes how narrow they are; where they begin is random, so no pixel alone tells the class.
/// Throws InputError if classifies_images() is false.
std::unique_ptr<DataSource> image_source(const Model& model, const DataShape& shape);

}  // namespace pipewright::exec
