#include "core/spmd/layout.hpp"

#include <array>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::spmd {
namespace {

constexpr std::array<std::pair<std::string_view, Reduction>, 9> kReductions = {
    {{"sum", Reduction::Sum},
     {"avg", Reduction::Average},
     {"prod", Reduction::Product},
     {"max", Reduction::Maximum},
     {"min", Reduction::Minimum},
     {"all", Reduction::All},
     {"any", Reduction::Any},
     {"logsumexp", Reduction::LogSumExp},
     {"norm", Reduction::Norm}}};

[[noreturn]] void refuse_placement(std::string_view text) {
  throw InputError("expected a placement such as \"R\", \"S0\" or \"P(sum)\", found \"" +
                   std::string(text) + "\"");
}

}  // namespace

int mapping_of(const std::vector<int>& mesh_dims, const ProcessMesh& mesh) {
  int largest = -1;
  for (const int dim : mesh_dims) {
    if (largest == -1 || mesh.size(dim) > mesh.size(largest)) largest = dim;
  }
  return largest;
}

std::vector<Placement> placements_of(const Layout& layout, const ProcessMesh& mesh) {
  std::vector<Placement> placements(mesh.shape.size());
  for (std::size_t axis = 0; axis < layout.dims.size(); ++axis) {
    for (const int dim : layout.dims[axis]) {
      placements[static_cast<std::size_t>(dim)] = {.kind = Placement::Kind::Shard,
                                                   .axis = static_cast<int>(axis)};
    }
  }
  for (const auto& [dim, reduction] : layout.partial) {
    placements[static_cast<std::size_t>(dim)] = {.kind = Placement::Kind::Partial,
                                                 .reduction = reduction};
  }
  return placements;
}

Layout layout_of(const std::vector<Placement>& placements, std::size_t tensor_dims) {
  Layout layout = Layout::replicated(tensor_dims);
  for (std::size_t dim = 0; dim < placements.size(); ++dim) {
    const Placement& placement = placements[dim];
    if (placement.kind == Placement::Kind::Partial) {
      layout.partial[static_cast<int>(dim)] = placement.reduction;
    } else if (placement.kind == Placement::Kind::Shard) {
      if (placement.axis < 0 || static_cast<std::size_t>(placement.axis) >= tensor_dims) {
        throw InputError("mesh dimension " + std::to_string(dim) + " divides dimension " +
                         std::to_string(placement.axis) + " of a tensor that has " +
                         std::to_string(tensor_dims));
      }
      layout.dims[static_cast<std::size_t>(placement.axis)].push_back(static_cast<int>(dim));
    }
  }
  return layout;
}

std::string_view name_of(Reduction reduction) {
  for (const auto& [name, value] : kReductions) {
    if (value == reduction) return name;
  }
  return "";
}

std::string text_of(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::Replicate:
      return "R";
    case Placement::Kind::Shard:
      return "S" + std::to_string(placement.axis);
    case Placement::Kind::Partial:
      break;
  }
  return "P(" + std::string(name_of(placement.reduction)) + ")";
}

std::string text_of(const Layout& layout, const ProcessMesh& mesh) {
  std::string text;
  for (const Placement& placement : placements_of(layout, mesh)) {
    text += (text.empty() ? "" : " ") + text_of(placement);
  }
  return text;
}

Placement placement_of(std::string_view text) {
  if (text == "R") return {};
  if (text == "P") return {.kind = Placement::Kind::Partial};
  if (text.size() > 3 && text.substr(0, 2) == "P(" && text.back() == ')') {
    const std::string_view word = text.substr(2, text.size() - 3);
    std::vector<std::string_view> names;
    for (const auto& [name, reduction] : kReductions) {
      if (word == name) return {.kind = Placement::Kind::Partial, .reduction = reduction};
      names.push_back(name);
    }
    throw InputError("\"" + std::string(word) + "\" is no reduction" + did_you_mean(word, names));
  }
  if (text.size() < 2 || text.size() > 3 || text.front() != 'S') refuse_placement(text);
  int axis = 0;
  for (const char digit : text.substr(1)) {
    if (digit < '0' || digit > '9') refuse_placement(text);
    axis = 10 * axis + (digit - '0');
  }
  return {.kind = Placement::Kind::Shard, .axis = axis};
}

void require_layout(const Tensor& tensor, const ProcessMesh& mesh, const std::string& name) {
  const auto refuse = [&](const std::string& what) { throw InputError(name + ": " + what); };
  if (tensor.layout.dims.size() != tensor.shape.size()) {
    refuse("has " + std::to_string(tensor.shape.size()) + " dimensions, and its dims_mapping " +
           std::to_string(tensor.layout.dims.size()) + " entries");
  }
  std::set<int> taken;
  const auto require_dim = [&](int dim) {
    if (dim < 0 || dim >= mesh.dims()) {
      refuse("names mesh dimension " + std::to_string(dim) + ", and the mesh has " +
             std::to_string(mesh.dims()));
    }
    return taken.insert(dim).second;
  };
  for (const std::vector<int>& divided : tensor.layout.dims) {
    for (const int dim : divided) {
      if (!require_dim(dim)) refuse("mesh dimension " + std::to_string(dim) + " divides it twice");
    }
  }
  for (const auto& [dim, reduction] : tensor.layout.partial) {
    if (!require_dim(dim)) {
      refuse("mesh dimension " + std::to_string(dim) +
             " divides it, so its values there cannot be Partial");
    }
  }
}

}  // namespace pipewright::spmd
