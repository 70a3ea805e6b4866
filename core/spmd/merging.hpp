// The divisions of some tensors become one division of the letters that they share.
#pragma once

#include <map>

#include "core/spmd/equation.hpp"

namespace pipewright::spmd {

/// A tensor that is heard.
struct Voice {
  std::string name, letters;
  Tensor tensor;
};

/// The mesh dimensions that divide each letter, the outermost first.
using Division = std::map<char, std::vector<int>>;

/// Throws InputError where the tensors contradict each other or the equation. Letters that have to
/// be whole are left out.
Division merged(const Equation& equation, const std::vector<Voice>& voices,
                const ProcessMesh& mesh);

/// The layout of a tensor with these letters.
Layout divided(const std::string& letters, const Division& division);

}  // namespace pipewright::spmd
