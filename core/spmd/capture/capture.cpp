#include "core/spmd/capture/capture.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/spmd/capture/folding.hpp"
#include "core/spmd/capture/translations.hpp"

namespace pipewright::spmd::capture {
namespace {

using Table = std::map<std::string_view, Outputs (*)(const NodeReading&, GraphBuilding&)>;

const Table& translations() {
  static const Table table = [] {
    Table rows;
    for (auto* more : {pointwise_translations, arranging_translations, summing_translations}) {
      for (const Translation& row : more()) rows.emplace(row.type, row.translate);
    }
    return rows;
  }();
  return table;
}

constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr std::size_t kMostFoldedTogether = std::size_t{1} << 25;

class Capturing {
 public:
  Capturing(const onnx::Model& model, const std::string& file, const CaptureOptions& options)
      : model_(model), file_{file, options.folder}, options_(options) {}

  Captured all() && {
    const auto opset = model_.opsets.find("");
    if (opset == model_.opsets.end()) {
      throw InputError(file_.name, "",
                       "names no version of ONNX's operators; is it an ONNX model?");
    }
    file_.opset = opset->second;
    take_initializers();
    take_inputs();
    for (std::size_t at = 0; at < model_.graph.nodes.size(); ++at) take_node(at);
    if (building_.graph.operators.empty()) {
      throw InputError(file_.name, "", "has no node that computes anything from its inputs");
    }
    building_.graph.meshes = {{"devices", ProcessMesh::of_shape(options_.mesh)}};
    return {std::move(building_.graph), std::move(building_.given)};
  }

 private:
  /// The initializers of which PyTorch says that it does not train them.
  std::set<std::string> buffers() const {
    std::set<std::string> names;
    for (const onnx::ValueInfo& value : model_.graph.values) {
      const auto kind = value.metadata.find("pkg.torch.export.graph_signature.InputSpec.kind");
      if (kind != value.metadata.end() && kind->second != "PARAMETER") names.insert(value.name);
    }
    return names;
  }

  /// Numbers that a training changes: floating-point ones, finite and more than one.
  bool is_trained(const onnx::TensorData& tensor) {
    const std::int64_t elements = tensor.elements();
    if (!onnx::is_float(tensor.type) || elements == 1 || constants_.count(tensor.name) > 0) {
      return false;
    }
    if (elements > kMostFolded) return true;
    const std::vector<double> values = onnx::values_of(tensor, options_.folder, file_.name);
    return std::all_of(values.begin(), values.end(), [](double one) { return std::isfinite(one); });
  }

  void take_initializers() {
    for (const std::string& name : options_.constants) {
      const auto& all = model_.graph.initializers;
      const auto found =
          std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
      if (found != all.end()) continue;
      std::vector<std::string_view> names;
      for (const auto& one : all) names.push_back(one.name);
      throw InputError(file_.name, "",
                       "has no initializer \"" + name + "\"" + did_you_mean(name, names));
    }
    constants_ = buffers();
    constants_.insert(options_.constants.begin(), options_.constants.end());
    for (const onnx::TensorData& tensor : model_.graph.initializers) {
      Value value{.name = tensor.name, .shape = tensor.dims, .type = tensor.type};
      value.is_trained = is_trained(tensor);
      value.initializer = &tensor;
      if (!value.is_trained && tensor.elements() <= kMostFolded) {
        value.initializer = nullptr;
        value.constant = {
            {tensor.dims, tensor.type, onnx::values_of(tensor, options_.folder, file_.name)}};
      }
      values_[tensor.name] = std::move(value);
    }
  }

  std::int64_t size_of(const onnx::ValueInfo& input, const onnx::Dimension& dimension) const {
    if (dimension.size && *dimension.size > 0 && *dimension.size <= kMostSize) {
      return *dimension.size;
    }
    const auto given = options_.dimensions.find(dimension.word);
    if (given != options_.dimensions.end() && !dimension.word.empty()) return given->second;
    const std::string word = dimension.word.empty() ? "a dimension without a name"
                                                    : "dimension \"" + dimension.word + "\"";
    throw InputError(file_.name, "input \"" + input.name + "\"",
                     word + " has no size" +
                         (dimension.word.empty() ? "; export the model with sizes or names"
                                                 : ": say --dimension " + dimension.word + "=8"));
  }

  void take_inputs() {
    for (const onnx::ValueInfo& input : model_.graph.inputs) {
      if (values_.count(input.name) > 0) continue;  // older files list initializers too
      if (!input.shape || type_name(input.type).empty()) {
        throw InputError(file_.name, "input \"" + input.name + "\"",
                         "expected a tensor of numbers with its dimensions");
      }
      Value value{.name = input.name, .shape = {}, .type = input.type};
      for (const onnx::Dimension& dimension : *input.shape) {
        value.shape.push_back(size_of(input, dimension));
      }
      values_[input.name] = std::move(value);
    }
  }

  NodeReading reading(std::size_t at) {
    const onnx::Node& node = model_.graph.nodes[at];
    std::vector<Value*> inputs;
    for (const std::string& name : node.inputs) {
      const auto found = values_.find(name);
      if (!name.empty() && found == values_.end()) {
        NodeReading(node, at, file_, {})
            .fail("takes \"" + name + "\", which nothing before it makes");
      }
      inputs.push_back(name.empty() ? nullptr : &found->second);
    }
    return {node, at, file_, std::move(inputs)};
  }

  void take_node(std::size_t at) {
    const NodeReading node = reading(at);
    const bool is_onnx = node.node().domain.empty() || node.node().domain == "ai.onnx";
    std::optional<Constant> constant;
    if (is_onnx) constant = folded(node);
    if (constant) {
      if (node.node().outputs.empty()) node.fail("has no output");
      folded_ += constant->values.size();
      if (folded_ > kMostFoldedTogether)
        node.fail("constants have more than 2^25 elements together");
      const std::string& name = node.node().outputs.front();
      values_[name] = GraphBuilding::known(std::move(*constant), name);
      return;
    }
    const auto row = translations().find(node.node().type);
    if (!is_onnx || row == translations().end()) refuse(node, is_onnx);
    for (std::size_t input = 0; input < node.inputs(); ++input) {
      if (!node.has(input) || node.input(input).constant) continue;
      static_cast<void>(node.checked(node.input(input).shape));
      // A weight that has two names afterwards stays one.
      if (node.input(input).initializer != nullptr) building_.tensor_of(node, node.input(input));
    }
    name_outputs(node, row->second(node, building_));
  }

  [[noreturn]] void refuse(const NodeReading& node, bool is_onnx) const {
    if (!is_onnx) {
      node.fail("is of \"" + node.node().domain + "\"; expected operators of ONNX itself");
    }
    std::string known;
    for (const std::string_view type : captured_nodes()) {
      known += (known.empty() ? "" : ", ") + std::string(type);
    }
    node.fail("is not captured; these are: " + known);
  }

  void name_outputs(const NodeReading& node, Outputs outputs) {
    const std::vector<std::string>& names = node.node().outputs;
    for (std::size_t at = 0; at < names.size(); ++at) {
      if (names[at].empty()) continue;
      if (at >= outputs.size()) {
        if (is_taken(names[at])) node.fail("its output \"" + names[at] + "\" is not captured");
        continue;
      }
      const std::size_t made = building_.graph.operators.size();
      const bool is_new = made > 0 && outputs[at].tensor && is_made_here(*outputs[at].tensor, node);
      if (is_new) {
        building_.call(outputs[at], names[at]);
        outputs[at].name = names[at];
      }
      values_[names[at]] = outputs[at];
    }
  }

  /// None of the node's inputs is it.
  static bool is_made_here(std::size_t tensor, const NodeReading& node) {
    for (std::size_t input = 0; input < node.inputs(); ++input) {
      if (node.has(input) && node.input(input).tensor == tensor) return false;
    }
    return true;
  }

  bool is_taken(const std::string& name) const {
    const auto has = [&](const auto& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    return std::any_of(model_.graph.nodes.begin(), model_.graph.nodes.end(),
                       [&](const onnx::Node& node) { return has(node.inputs); });
  }

  const onnx::Model& model_;
  ModelFile file_;
  const CaptureOptions& options_;
  GraphBuilding building_;
  std::map<std::string, Value> values_;  // by name
  std::set<std::string> constants_;      // initializers that are not trained
  std::size_t folded_ = 0;               // elements of what was computed
};

}  // namespace

Captured captured(const onnx::Model& model, const std::string& file,
                  const CaptureOptions& options) {
  return Capturing(model, file, options).all();
}

std::vector<std::string_view> captured_nodes() {
  std::vector<std::string_view> types;
  for (const auto& [type, translate] : translations()) types.push_back(type);
  return types;
}

}  // namespace pipewright::spmd::capture
