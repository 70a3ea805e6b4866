// Residual networks for images (He and others, "Deep Residual Learning for Image Recognition",
// arXiv:1512.03385, table 1): a stem, bottleneck blocks in four groups, a head. The stride stands
// in a block's 3x3 convolution, as in most code that is used today ("v1.5").
#pragma once

#include <vector>

#include "core/model/model.hpp"

namespace pipewright {

struct ResNetShape {
  ImageShape image{3, 224, 224};
  int classes = 1000;
  int width = 64;  // channels of the stem; each group has twice those before
  Window stem{7, 2, 3};
  bool pools = true;                    // a 3x3 max pool of stride 2 after the stem
  std::vector<int> blocks{3, 4, 6, 3};  // by group
};

/// "stem", "block 0" …, "head": the blocks are what a pipeline may be cut between. Checks nothing:
/// the image has to be large enough.
std::vector<Layer> expand(const ResNetShape& shape);

}  // namespace pipewright
