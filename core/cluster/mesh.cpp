#include "core/cluster/mesh.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/most_devices.hpp"
#include "core/cluster/cluster.hpp"

namespace pipewright {

namespace {

/// Pipeline, data, tensor, expert and context parallelism.
constexpr std::array<std::string_view, 5> kDimensions{"pp", "dp", "tp", "ep", "cp"};

std::string read_dimension(const JsonCursor& value) {
  std::vector<std::pair<std::string_view, std::string_view>> choices;
  for (std::string_view name : kDimensions) {
    choices.emplace_back(name, name);
  }
  return std::string(read_choice(value, choices));
}

}  // namespace

int Mesh::size(std::string_view dim) const {
  for (std::size_t k = 0; k < dim_names.size(); ++k) {
    if (dim_names[k] == dim) {
      return shape[k];
    }
  }
  return 1;
}

Mesh Mesh::pipeline(int ranks) {
  Mesh mesh;
  mesh.shape = {ranks};
  mesh.dim_names = {"pp"};
  for (int device = 0; device < ranks; ++device) {
    mesh.devices.push_back(device);
  }
  return mesh;
}

Mesh Mesh::data_parallel(int replicas, int ranks) {
  if (replicas == 1) return pipeline(ranks);
  Mesh mesh = pipeline(replicas * ranks);
  mesh.shape = {replicas, ranks};
  mesh.dim_names = {"dp", "pp"};
  return mesh;
}

namespace {

/// The outermost dimension first; those of one device are left out, but for "pp".
Mesh mesh_of(const std::array<std::pair<std::string_view, int>, 4>& dims) {
  int devices = 1;
  for (const auto& [name, size] : dims) devices *= size;
  Mesh mesh = Mesh::pipeline(devices);
  mesh.shape.clear();
  mesh.dim_names.clear();
  for (const auto& [name, size] : dims) {
    if (size == 1 && name != "pp") continue;
    mesh.shape.push_back(size);
    mesh.dim_names.emplace_back(name);
  }
  return mesh;
}

}  // namespace

Mesh Mesh::grid(int pipeline, int data, int context, int tensor) {
  return mesh_of({{{"pp", pipeline}, {"dp", data}, {"cp", context}, {"tp", tensor}}});
}

Mesh Mesh::grid_of_replicas(int pipeline, int data, int context, int tensor) {
  return mesh_of({{{"dp", data}, {"pp", pipeline}, {"cp", context}, {"tp", tensor}}});
}

Mesh Mesh::grid_of_parts(int pipeline, int data, int context, int tensor) {
  return mesh_of({{{"dp", data}, {"cp", context}, {"pp", pipeline}, {"tp", tensor}}});
}

bool Mesh::has_pipeline_inside_data() const {
  if (size("pp") == 1 || size("dp") == 1) return false;
  const auto place = [&](const char* dim) {
    return std::find(dim_names.begin(), dim_names.end(), dim);
  };
  return place("dp") < place("pp");
}

namespace {

/// Places to go in `devices` for one step along a dimension. Row major: that skips the sizes of all
/// dimensions after it.
std::size_t stride_of(const Mesh& mesh, std::string_view dim) {
  std::size_t stride = 1;
  bool after = false;
  for (std::size_t k = 0; k < mesh.dim_names.size(); ++k) {
    stride *= after ? static_cast<std::size_t>(mesh.shape[k]) : 1;
    after = after || mesh.dim_names[k] == dim;
  }
  return stride;
}

/// The last of these dimensions varies fastest; of any other the first place.
std::vector<int> devices_along(const Mesh& mesh, std::initializer_list<std::string_view> dims) {
  std::vector<std::size_t> places{0};
  for (const std::string_view dim : dims) {
    const std::size_t stride = stride_of(mesh, dim);
    std::vector<std::size_t> finer;
    for (const std::size_t place : places) {
      for (std::size_t k = 0; k < static_cast<std::size_t>(mesh.size(dim)); ++k)
        finer.push_back(place + k * stride);
    }
    places = std::move(finer);
  }
  std::vector<int> result;
  for (const std::size_t place : places) {
    PIPEWRIGHT_ASSERT(place < mesh.devices.size(), "a mesh has fewer devices than its shape");
    result.push_back(mesh.devices[place]);
  }
  return result;
}

}  // namespace

std::vector<int> Mesh::devices_of_pipeline() const { return devices_along(*this, {"pp"}); }

std::vector<int> Mesh::devices_of_replicas() const { return devices_along(*this, {"dp", "pp"}); }

std::vector<int> Mesh::devices_of_parts() const { return devices_along(*this, {"dp", "cp", "pp"}); }

std::vector<int> Mesh::devices_that_divide_ranks() const {
  return devices_along(*this, {"dp", "cp", "pp", "tp"});
}

Mesh read_mesh(const JsonCursor& value) {
  value.only({"shape", "dim_names", "devices"});
  Mesh mesh;
  const JsonCursor shape = value.at("shape");
  std::int64_t product = 1;
  for (const JsonCursor& size : shape.elements()) {
    mesh.shape.push_back(read_count(size, 1, kMostDevices));
    product *= mesh.shape.back();
    if (product > kMostDevices) {
      shape.fail("a shape of at most " + std::to_string(kMostDevices) + " devices in all");
    }
  }
  if (mesh.shape.empty()) {
    shape.fail("a shape with at least one dimension");
  }
  const JsonCursor names = value.at("dim_names");
  for (const JsonCursor& name : names.elements()) {
    mesh.dim_names.push_back(read_dimension(name));
    if (std::count(mesh.dim_names.begin(), mesh.dim_names.end(), mesh.dim_names.back()) > 1) {
      name.fail("a name that no other dimension has");
    }
  }
  if (mesh.dim_names.size() != mesh.shape.size()) {
    names.fail("one name for each of the " + std::to_string(mesh.shape.size()) + " dimensions");
  }
  const JsonCursor devices = value.at("devices");
  std::set<int> seen;
  for (const JsonCursor& device : devices.elements()) {
    mesh.devices.push_back(read_count(device, 0, kMostDevices - 1));
    if (!seen.insert(mesh.devices.back()).second) {
      device.fail("a device that stands only once in the mesh");
    }
  }
  if (static_cast<std::int64_t>(mesh.devices.size()) != product) {
    devices.fail(std::to_string(product) + " devices, the product of the shape");
  }
  return mesh;
}

Json to_json(const Mesh& mesh) {
  return {{"shape", mesh.shape}, {"dim_names", mesh.dim_names}, {"devices", mesh.devices}};
}

}  // namespace pipewright
