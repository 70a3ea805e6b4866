#include "exec/layers/parameters.hpp"

#include "exec/base/random.hpp"

namespace pipewright::exec {

Parameter random_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                           float bound) {
  Parameter parameter = constant_parameter(site, name, size, 0.0F);
  parameter.decays = true;
  const std::uint64_t key = key_of(site.seed, parameter.name);
  for (std::size_t i = 0; i < size; ++i) parameter.value[i] = bound * symmetric_uniform(key, i);
  return parameter;
}

Parameter constant_parameter(const LayerSite& site, const std::string& name, std::size_t size,
                             float value) {
  return {site.path + "/" + name, false, AlignedFloats(size, value), AlignedFloats(size, 0.0F)};
}

}  // namespace pipewright::exec
