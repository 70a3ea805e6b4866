#include "exec/layers/parameters.hpp"

#include "exec/base/random.hpp"
#include "exec/layers/expert_group.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec {

namespace {

std::size_t place_in_whole(const Parameter& parameter, std::size_t i) {
  return static_cast<std::size_t>(parameter.slice.place_of(static_cast<std::int64_t>(i)));
}

}  // namespace

Parameter declared(const LayerSite& site, const Weight& weight) {
  Parameter parameter;
  parameter.name = site.path + "/" + std::string(weight.name);
  parameter.decays = weight.bound > 0;
  parameter.is_statistic = weight.is_statistic;
  parameter.start = weight;
  parameter.start.name = {};  // which may not live as long
  parameter.is_copy = site.tensor != nullptr && site.tensor->index() > 0;
  parameter.is_replicas_copy = site.experts != nullptr && site.experts->replica() > 0;
  return parameter;
}

std::vector<Parameter> declared_parameters(const Layer& layer, const LayerSite& site) {
  std::vector<Parameter> parameters;
  for (const Weight& weight : weights_of(layer, site.width))
    parameters.push_back(declared(site, weight));
  return parameters;
}

void divide(Parameter& parameter, const Slice& slice) {
  parameter.slice = slice;
  parameter.start.size = slice.size();
  parameter.is_copy = false;
}

void divide_experts(Parameter& parameter, const Slice& slice, const ExpertGroup& group) {
  parameter.slice = slice;
  parameter.start.size = slice.size();
  parameter.is_of_experts = true;
  if (group.is_folded()) parameter.is_copy = false;
  parameter.is_replicas_copy = false;
}

void allocate(Parameter& parameter, std::uint64_t seed) {
  if (!parameter.value.empty()) return;
  const Weight& start = parameter.start;
  const auto size = static_cast<std::size_t>(start.size);
  parameter.value.assign(size, start.value);
  parameter.gradient.assign(size, 0.0F);
  if (start.bound == 0) return;
  const std::uint64_t key = key_of(seed, parameter.name);
  for (std::size_t i = 0; i < size; ++i)
    parameter.value[i] = start.bound * symmetric_uniform(key, place_in_whole(parameter, i));
}

Parameter allocated(const LayerSite& site, const Weight& weight) {
  Parameter parameter = declared(site, weight);
  allocate(parameter, site.seed);
  return parameter;
}

}  // namespace pipewright::exec
