#include "planner/tensor_placement/operator_work.hpp"

#include <algorithm>
#include <set>

#include "core/order/element_type.hpp"
#include "core/spmd/graph/rule_answers.hpp"
#include "core/spmd/local_part.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::planner::tensor_placement {
namespace {

enum class Kind {
  Product,    // matrix products and convolutions
  Attention,  // two products, whose scores never reach memory
  View,       // the same memory under another shape
  Choice,     // reads no more of its table than it writes
  Stream,     // reads its inputs, writes its outputs
};

bool is_one_of(std::string_view rule, std::initializer_list<std::string_view> rules) {
  return std::find(rules.begin(), rules.end(), rule) != rules.end();
}

Kind kind_of(std::string_view rule) {
  if (is_one_of(rule, {"matmul", "conv2d", "fused_linear_param_grad_add"})) return Kind::Product;
  if (is_one_of(rule, {"flash_attention", "scaled_dot_product_attention"})) return Kind::Attention;
  if (is_one_of(rule, {"reshape", "flatten", "squeeze", "unsqueeze", "assign"})) return Kind::View;
  if (is_one_of(rule, {"embedding", "c_embedding", "lookup_table_v2", "gather", "gather_nd"})) {
    return Kind::Choice;
  }
  return Kind::Stream;
}

bool divides_classes(std::string_view rule) {
  return is_one_of(rule, {"cross_entropy_with_softmax", "c_softmax_with_cross_entropy",
                          "c_softmax_with_multi_label_cross_entropy"});
}

double product(const spmd::Shape& shape) {
  double elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<double>(size);
  return elements;
}

class Work {
 public:
  Work(const spmd::OperatorGraph& graph, std::size_t at, const std::vector<spmd::Layout>& inputs,
       const std::vector<spmd::Layout>& outputs, const MeshPrices& prices)
      : graph_(graph), one_(graph.operators[at]), inputs_(inputs), prices_(prices) {
    add_parts(tensors_of(one_.inputs), inputs, in_, in_bytes_);
    add_parts(tensors_of(one_.outputs), outputs, out_, out_bytes_);
  }

  OperatorNanoseconds nanoseconds(const std::vector<bool>& gradients) const {
    const auto wanted = static_cast<double>(std::count(gradients.begin(), gradients.end(), true));
    OperatorNanoseconds ns = computed(gradients);
    if (wanted == 0) ns.backward = 0;
    if (divides_classes(one_.rule)) ns.own_collectives = summed_loss();
    return ns;
  }

 private:
  void add_parts(const std::vector<std::optional<std::size_t>>& tensors,
                 const std::vector<spmd::Layout>& layouts, std::vector<spmd::Shape>& parts,
                 std::vector<double>& bytes) const {
    for (std::size_t place = 0; place < tensors.size(); ++place) {
      parts.emplace_back();
      bytes.push_back(0);
      if (!tensors[place]) continue;
      const spmd::GraphTensor& tensor = graph_.tensors[*tensors[place]];
      parts.back() = local_part({tensor.shape, layouts[place]}, prices_.mesh(), 0).shape;
      bytes.back() = static_cast<double>(element_type(tensor.type)->bytes) * product(parts.back());
    }
  }

  static double sum(const std::vector<double>& bytes) {
    double all = 0;
    for (const double one : bytes) all += one;
    return all;
  }

  /// The backward of a product has one for each gradient, that of attention five for two
  /// (arXiv:2205.14135, algorithm 4); others read what the forward had, with the gradients of the
  /// outputs, and write those of the inputs.
  OperatorNanoseconds computed(const std::vector<bool>& gradients) const {
    const double passed = sum(in_bytes_) + sum(out_bytes_);
    double asked = 0, count = 0;
    for (std::size_t place = 0; place < gradients.size(); ++place) {
      if (!gradients[place]) continue;
      asked += in_bytes_[place];
      ++count;
    }
    switch (kind_of(one_.rule)) {
      case Kind::Product: {
        const double ns = prices_.compute(product_operations(), passed);
        return {ns, count * ns};
      }
      case Kind::Attention: {
        const double operations = attention_operations();
        return {prices_.compute(operations, passed), prices_.compute(2.5 * operations, 2 * passed)};
      }
      case Kind::View:
        return {};
      case Kind::Choice:
        return {prices_.compute(0, 2 * sum(out_bytes_)),
                prices_.compute(0, sum(out_bytes_) + asked)};
      case Kind::Stream:
        break;
    }
    return {prices_.compute(0, passed), prices_.compute(0, passed + asked)};
  }

  /// A multiplication and an addition for each combination of the letters' elements.
  double product_operations() const {
    if (one_.rule == "conv2d") {
      const double places = product(out_.front()) / static_cast<double>(out_.front()[1]);
      return 2 * places * product(in_[1]);
    }
    const spmd::Equation equation =
        equation_of(call_of(graph_, one_, spmd::Direction::Forward, prices_.mesh(), inputs_,
                            whole_layouts(graph_, one_.outputs)));
    std::set<char> seen;
    double operations = 2;
    for (std::size_t place = 0; place < 2; ++place) {
      for (std::size_t axis = 0; axis < in_[place].size(); ++axis) {
        const char letter = equation.inputs[place][axis];
        if (letter != spmd::kUndivided && letter != spmd::kSizeOne && seen.insert(letter).second) {
          operations *= static_cast<double>(in_[place][axis]);
        }
      }
    }
    return operations;
  }

  /// Queries with keys and scores with values; of a causal one half of each square.
  double attention_operations() const {
    if (in_[0].size() != 4 || in_[1].size() != 4) return 0;
    const bool by_heads = one_.rule == "scaled_dot_product_attention";
    const std::size_t place = by_heads ? 0 : 1, tokens = by_heads ? 2 : 1;
    const bool causal =
        one_.attributes.size() > place && one_.attributes[place] == spmd::Attribute(true);
    return (causal ? 2 : 4) * product(in_[0]) * static_cast<double>(in_[1][tokens]);
  }

  /// The largest logit, the sum of exponentials and the label's logit of every row, in 32 bits.
  double summed_loss() const {
    const std::vector<int>& dims = inputs_.front().dims.back();
    if (dims.empty()) return 0;
    spmd::Shape rows = in_.front();
    rows.back() = 1;
    return 3 * prices_.all_reduce(dims, 4 * static_cast<std::int64_t>(product(rows)));
  }

  const spmd::OperatorGraph& graph_;
  const spmd::GraphOperator& one_;
  const std::vector<spmd::Layout>& inputs_;
  const MeshPrices& prices_;
  std::vector<spmd::Shape> in_, out_;  // the process's parts
  std::vector<double> in_bytes_, out_bytes_;
};

}  // namespace

OperatorNanoseconds work_of(const spmd::OperatorGraph& graph, std::size_t at,
                            const std::vector<spmd::Layout>& inputs,
                            const std::vector<spmd::Layout>& outputs,
                            const std::vector<bool>& gradients, const MeshPrices& prices) {
  return Work(graph, at, inputs, outputs, prices).nanoseconds(gradients);
}

}  // namespace pipewright::planner::tensor_placement
