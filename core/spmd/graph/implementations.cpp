#include "core/spmd/graph/implementations.hpp"

#include <algorithm>

namespace pipewright::spmd {
namespace {

const Implementation kDefault = {"default", 0};

bool flag_at(const GraphOperator& one, std::size_t place) {
  if (place >= one.attributes.size()) return false;
  const bool* flag = std::get_if<bool>(&one.attributes[place]);
  return flag != nullptr && *flag;
}

/// Whether the dimension before the last, or the last one, is divided; a vector has one alone.
bool is_divided(const Layout& layout, bool before_last) {
  const std::size_t rank = layout.dims.size();
  if (rank == 1) return !layout.dims[0].empty();
  return !layout.dims[before_last ? rank - 2 : rank - 1].empty();
}

/// [m, k] by [k, n]. Where both k and n are divided it has none of its own.
Implementation of_product(const GraphOperator& one, const std::vector<Layout>& inputs) {
  const bool k = is_divided(inputs[0], flag_at(one, 0));
  const bool n = inputs[1].dims.size() > 1 && is_divided(inputs[1], flag_at(one, 1));
  if (k && n) return kDefault;
  return {"matmul_v2", n ? 0 : k ? 1 : 2};
}

/// Those that PaddlePaddle's completion does not ask by rule, and that are its elementwise
/// operators.
bool is_elementwise(std::string_view rule) {
  constexpr std::string_view kRules[] = {"cast", "elementwise_pow", "gelu", "maximum", "minimum",
                                         "relu", "subtract"};
  return std::find(std::begin(kRules), std::end(kRules), rule) != std::end(kRules);
}

bool has_partial(const std::vector<Layout>& layouts) {
  return std::any_of(layouts.begin(), layouts.end(),
                     [](const Layout& layout) { return !layout.partial.empty(); });
}

}  // namespace

Implementation implementation_of(const GraphOperator& one, const std::vector<Layout>& inputs,
                                 const std::vector<Layout>& outputs) {
  if (one.rule == "matmul") return of_product(one, inputs);
  if (one.rule == "embedding" || one.rule == "lookup_table_v2") {
    return has_partial(outputs) ? Implementation{"lookup_table_v2", 0} : kDefault;
  }
  if (one.rule == "c_embedding") {
    return has_partial(outputs) ? Implementation{"c_embedding", 0} : kDefault;
  }
  if (one.rule == "cross_entropy_with_softmax") {
    const bool parts = !inputs[0].dims.empty() && !inputs[0].dims.back().empty();
    return {"softmax_with_cross_entropy", parts ? 1 : 0};
  }
  if (one.rule == "reshape") return {"reshape2", 0};
  if (one.rule == "flash_attention") return {"flash_attn", 0};
  if (one.rule == "slice" || one.rule == "softmax") return {one.rule, 0};
  if (is_elementwise(one.rule)) return {"elementwise", 0};
  return kDefault;
}

}  // namespace pipewright::spmd
