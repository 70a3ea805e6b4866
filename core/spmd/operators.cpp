#include "core/spmd/operators.hpp"

#include <algorithm>
#include <map>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"

namespace pipewright::spmd {
namespace {

std::map<std::string_view, Operator> table_of_operators() {
  std::map<std::string_view, Operator> table;
  for (auto* rows :
       {pointwise_operators, contracting_operators, reducing_operators, arranging_operators,
        regrouping_operators, indexing_operators, fused_operators}) {
    for (Operator& row : rows()) {
      const std::string_view name = row.name;
      PIPEWRIGHT_ASSERT(table.emplace(name, std::move(row)).second, "an operator stands twice");
    }
  }
  return table;
}

const std::map<std::string_view, Operator>& operator_table() {
  static const std::map<std::string_view, Operator> table = table_of_operators();
  return table;
}

}  // namespace

const Operator& operator_named(std::string_view name) {
  const auto found = operator_table().find(name);
  if (found != operator_table().end()) return found->second;
  throw InputError("there is no operator \"" + std::string(name) + "\"" +
                   did_you_mean(name, operator_names()));
}

std::vector<std::string_view> operator_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, row] : operator_table()) names.push_back(name);
  return names;
}

}  // namespace pipewright::spmd
