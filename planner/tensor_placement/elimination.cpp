#include "planner/tensor_placement/elimination.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace pipewright::planner::tensor_placement {
namespace {

/// Places of a table while an odometer goes over variables.
std::vector<std::size_t> strides_in(const Table& table, const std::vector<std::size_t>& variables,
                                    const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> strides(variables.size());
  std::size_t stride = 1;
  for (std::size_t at = table.variables.size(); at-- > 0;) {
    const auto found = std::find(variables.begin(), variables.end(), table.variables[at]);
    if (found != variables.end()) {
      strides[static_cast<std::size_t>(found - variables.begin())] = stride;
    }
    stride *= sizes[table.variables[at]];
  }
  return strides;
}

double entries(const std::set<std::size_t>& variables, const std::vector<std::size_t>& sizes) {
  double count = 1;
  for (const std::size_t variable : variables) count *= static_cast<double>(sizes[variable]);
  return count;
}

std::size_t place_of(const Table& table, const std::vector<std::size_t>& sizes,
                     const Assignment& assignment) {
  std::size_t place = 0;
  for (const std::size_t variable : table.variables) {
    place = place * sizes[variable] + assignment[variable];
  }
  return place;
}

}  // namespace

std::vector<std::size_t> elimination_order(const FactorGraph& graph, std::size_t last) {
  const std::size_t count = graph.sizes.size();
  std::vector<std::set<std::size_t>> neighbours(count);
  for (std::size_t variable = 0; variable < count; ++variable) {
    neighbours[variable].insert(variable);
  }
  for (const Factor& factor : graph.factors) {
    for (const std::size_t variable : factor.variables) {
      neighbours[variable].insert(factor.variables.begin(), factor.variables.end());
    }
  }
  std::vector<double> weight(count);
  for (std::size_t variable = 0; variable < count; ++variable) {
    weight[variable] = entries(neighbours[variable], graph.sizes);
  }
  constexpr double kDone = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> order;
  if (last < count) weight[last] = std::numeric_limits<double>::max();
  while (order.size() < count) {
    const auto least = std::min_element(weight.begin(), weight.end());
    const auto chosen = static_cast<std::size_t>(least - weight.begin());
    order.push_back(chosen);
    weight[chosen] = kDone;
    for (const std::size_t one : neighbours[chosen]) {
      if (one == chosen) continue;
      neighbours[one].insert(neighbours[chosen].begin(), neighbours[chosen].end());
      neighbours[one].erase(chosen);
      if (one != last) weight[one] = entries(neighbours[one], graph.sizes);
    }
  }
  return order;
}

Elimination::Elimination(const FactorGraph& graph, std::vector<std::size_t> order, Weights weights)
    : sizes_(graph.sizes),
      order_(std::move(order)),
      position_(order_.size()),
      buckets_(order_.size()),
      messages_(order_.size()),
      constants_(order_.size()) {
  for (std::size_t at = 0; at < order_.size(); ++at) position_[order_[at]] = at;
  for (const Factor& factor : graph.factors) {
    Table table{.variables = factor.variables, .values = {}};
    table.values.reserve(factor.ns.size());
    for (std::size_t at = 0; at < factor.ns.size(); ++at) {
      table.values.push_back(weights.ns * factor.ns[at] + weights.bytes * factor.bytes[at]);
    }
    put(std::move(table));
  }
  for (std::size_t position = 0; position < order_.size(); ++position) eliminate(position);
}

void Elimination::put(Table table) {
  if (table.variables.empty()) {
    bound_ += table.values.front();
    return;
  }
  buckets_[bucket_of(table)].push_back(tables_.size());
  tables_.push_back(std::move(table));
}

std::size_t Elimination::bucket_of(const Table& table) const {
  std::size_t first = order_.size();
  for (const std::size_t variable : table.variables) first = std::min(first, position_[variable]);
  return first;
}

void Elimination::eliminate(std::size_t position) {
  std::vector<std::size_t> bucket = buckets_[position];
  if (bucket.empty()) return;
  std::stable_sort(bucket.begin(), bucket.end(), [&](std::size_t one, std::size_t other) {
    return tables_[one].values.size() > tables_[other].values.size();
  });
  std::vector<std::vector<std::size_t>> parts;
  std::vector<std::set<std::size_t>> scopes;
  for (const std::size_t table : bucket) {
    const auto& variables = tables_[table].variables;
    std::size_t at = 0;
    for (; at < parts.size(); ++at) {
      std::set<std::size_t> together = scopes[at];
      together.insert(variables.begin(), variables.end());
      if (entries(together, sizes_) > static_cast<double>(kMostEntries)) continue;
      scopes[at] = std::move(together);
      parts[at].push_back(table);
      break;
    }
    if (at < parts.size()) continue;
    parts.push_back({table});
    scopes.emplace_back(variables.begin(), variables.end());
  }
  if (parts.size() > 1) is_exact_ = false;
  for (const std::vector<std::size_t>& part : parts) {
    Table message = minimum(part, order_[position]);
    if (message.variables.empty()) {
      constants_[position] += message.values.front();
    } else {
      messages_[position].push_back(tables_.size());
    }
    put(std::move(message));
  }
}

Table Elimination::minimum(const std::vector<std::size_t>& tables, std::size_t variable) const {
  std::set<std::size_t> scope;
  for (const std::size_t table : tables) {
    scope.insert(tables_[table].variables.begin(), tables_[table].variables.end());
  }
  scope.erase(variable);
  Table result{.variables = {scope.begin(), scope.end()}, .values = {}};
  std::vector<std::size_t> sizes, places(tables.size());
  std::vector<std::vector<std::size_t>> strides;
  std::vector<std::size_t> own;
  for (const std::size_t one : result.variables) sizes.push_back(sizes_[one]);
  for (const std::size_t table : tables) {
    strides.push_back(strides_in(tables_[table], result.variables, sizes_));
    own.push_back(strides_in(tables_[table], {variable}, sizes_).front());
  }
  const std::size_t count = sizes_[variable];
  std::vector<double> sums(count);
  std::vector<std::size_t> values(sizes.size());
  while (true) {
    std::fill(sums.begin(), sums.end(), 0);
    for (std::size_t table = 0; table < tables.size(); ++table) {
      const double* entry = tables_[tables[table]].values.data() + places[table];
      for (std::size_t value = 0; value < count; ++value) sums[value] += entry[value * own[table]];
    }
    result.values.push_back(*std::min_element(sums.begin(), sums.end()));
    std::size_t at = values.size();
    while (at > 0) {
      --at;
      for (std::size_t table = 0; table < tables.size(); ++table)
        places[table] += strides[table][at];
      if (++values[at] < sizes[at]) break;
      for (std::size_t table = 0; table < tables.size(); ++table) {
        places[table] -= strides[table][at] * sizes[at];
      }
      values[at] = 0;
      if (at == 0) return result;
    }
    if (values.empty()) return result;
  }
}

std::vector<double> Elimination::growth(std::size_t depth, Assignment& assignment) const {
  const std::size_t position = order_.size() - 1 - depth, variable = order_[position];
  double before = constants_[position];
  for (const std::size_t message : messages_[position]) {
    before += tables_[message].values[place_of(tables_[message], sizes_, assignment)];
  }
  std::vector<double> growth(sizes_[variable]);
  for (std::size_t value = 0; value < growth.size(); ++value) {
    assignment[variable] = value;
    for (const std::size_t table : buckets_[position]) {
      growth[value] += tables_[table].values[place_of(tables_[table], sizes_, assignment)];
    }
  }
  for (double& one : growth) one -= before;
  return growth;
}

Assignment Elimination::assignment() const {
  Assignment assignment(order_.size());
  for (std::size_t depth = 0; depth < order_.size(); ++depth) {
    const std::vector<double> values = growth(depth, assignment);
    assignment[variable_at(depth)] =
        static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin());
  }
  return assignment;
}

std::vector<double> Elimination::bounds_of_last() const {
  Assignment none(order_.size());
  std::vector<double> bounds = growth(0, none);
  for (double& one : bounds) one += bound_;
  return bounds;
}

}  // namespace pipewright::planner::tensor_placement
