// Operators that are several in one, with outputs of their own: normalisation, attention, losses,
// and the two that say no more than how their tensors lie.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/spmd/operators.hpp"

namespace pipewright::spmd {
namespace {

/// Elements of the dimensions from begin_norm_axis on are normalised together; scale and bias, of
/// these dimensions alone, lie whole everywhere.
Equation normalised(const Operands& operands) {
  const std::size_t rank = operands.rank();
  const std::size_t first = operands.axis("begin_norm_axis", rank);
  const std::string all = letters(rank), kept = all.substr(0, first);
  const auto whole = [&](std::size_t input) {
    return std::string(operands.rank(input), kUndivided);
  };
  return {.inputs = {all, whole(1), whole(2)},
          .outputs = {all, kept, kept},
          .whole = all.substr(first),
          .heard = {0}};
}

Equation normalised_backward(const Operands& operands) {
  Equation equation = normalised(operands);
  equation.heard.clear();
  return equation;
}

/// As layer_norm, by the root of the mean square alone: there is no bias.
Equation normalised_by_size(const Operands& operands) {
  const std::size_t rank = operands.rank();
  const std::size_t first = operands.axis("begin_norm_axis", rank);
  const std::string all = letters(rank);
  return {.inputs = {all, std::string(operands.rank(1), kUndivided)},
          .outputs = {all, all.substr(0, first)},
          .whole = all.substr(first),
          .heard = {0}};
}

Equation normalised_by_size_backward(const Operands& operands) {
  Equation equation = normalised_by_size(operands);
  equation.heard.clear();
  return equation;
}

/// Queries and keys may have different numbers of heads: each head of keys and values serves as
/// many of queries as follow each other, so that a process has its own groups whole if heads of
/// keys divide evenly. One head serves all, and lies whole.
struct GroupedHeads {
  char of_keys = 'H';
  std::vector<std::pair<char, std::int64_t>> even = {};
};

GroupedHeads grouped_heads(const Operands& operands, std::size_t axis) {
  for (std::size_t input = 0; input < 3; ++input) {
    if (operands.rank(input) != 4) return {};  // which is refused where it is heard
  }
  const std::int64_t queries = operands.shape(0)[axis], keys = operands.shape(1)[axis];
  if (operands.shape(2)[axis] != keys) {
    throw InputError("k has " + std::to_string(keys) + " heads, v " +
                     std::to_string(operands.shape(2)[axis]));
  }
  if (queries == keys || queries < 1 || keys < 1) return {};
  if (queries % keys != 0) {
    throw InputError("q has " + std::to_string(queries) + " heads, which is no multiple of k's " +
                     std::to_string(keys));
  }
  if (keys == 1) return {.of_keys = kUndivided, .even = {}};
  return {.of_keys = 'H', .even = {{'H', keys}}};
}

/// [batch, tokens, heads, width]: batches and heads are independent, all else is needed whole.
Equation attention(const Operands& operands) {
  std::string seed(operands.rank(3), kUndivided), mask(operands.rank(4), kUndivided);
  if (mask.size() == 4 && operands.rank(0) == 4 && operands.shape(4)[0] == operands.shape(0)[0])
    mask[0] = 'B';
  const GroupedHeads heads = grouped_heads(operands, 2);
  const std::string keys = std::string("B1") + heads.of_keys + "1";
  return {.inputs = {"B1H1", keys, keys, seed, mask},
          .outputs = {"B1H1", "BH11", "BH1", "1"},
          .even = heads.even,
          .heard = {0, 1},
          .summed = {"", "", "", ""}};
}

/// [batch, heads, tokens, width], with a mask [batch or 1, heads or 1, queries, keys].
Equation attention_by_heads(const Operands& operands) {
  const GroupedHeads heads = grouped_heads(operands, 1);
  std::string mask(operands.rank(3), kUndivided);
  for (std::size_t axis = 0; axis < 2 && mask.size() == 4 && operands.rank(0) == 4; ++axis) {
    const std::int64_t size = operands.shape(3)[axis];
    if (size != 1 && size == operands.shape(0)[axis]) mask[axis] = "BH"[axis];
  }
  const std::string keys = std::string("B") + heads.of_keys + "11";
  return {.inputs = {"BH11", keys, keys, mask},
          .outputs = {"BH11"},
          .even = heads.even,
          .heard = {0, 1},
          .summed = {""}};
}

Equation attention_by_heads_backward(const Operands& operands) {
  Equation equation = attention_by_heads(operands);
  equation.heard.clear();
  return equation;
}

/// Only the sums of exponentials say how the output lies; itself where they are left out.
Equation attention_backward(const Operands& operands) {
  Equation equation = attention(operands);
  const bool has_sums = !operands.outputs()[2].tensors.front().shape.empty();
  equation.heard = {has_sums ? std::size_t{2} : std::size_t{0}};
  return equation;
}

Equation added_after_dropout(const Operands& operands) {
  const std::string all = letters(operands.rank());
  return {.inputs = {all, all},
          .outputs = {all, "1"},
          .outputs_stay = true,
          .staying = {0, 1},
          .summed = {"", ""}};
}

Equation added_after_dropout_backward(const Operands& operands) {
  Equation equation = added_after_dropout(operands);
  equation.heard = {0};
  return equation;
}

/// Logits [..., classes, ...]; labels and losses have one element there, labels that are shares
/// all.
Equation class_losses(const Operands& operands, std::size_t axis, bool labels_are_shares) {
  const std::string all = letters(operands.rank());
  std::string label = all, loss = all;
  loss[axis] = kSizeOne;
  if (!labels_are_shares) label[axis] = kSizeOne;
  return {.inputs = {all, label}, .outputs = {all, loss}, .summed = {"", ""}};
}

Equation cross_entropy(const Operands& operands) {
  const std::size_t rank = operands.rank(), axis = operands.axis("axis", rank);
  const bool shares = operands.boolean("soft_label"), from_logits = operands.boolean("use_softmax");
  Equation equation = class_losses(operands, axis, shares);
  const char classes = equation.inputs[0][axis];
  if (!from_logits) equation.outputs[0].clear();
  if (axis + 1 != rank) {
    equation.refused.emplace_back(classes,
                                  "classes can only be divided where they are the last dimension");
  } else if (shares) {
    equation.refused.emplace_back(classes, "labels that are shares need all classes");
  } else if (!from_logits) {
    equation.refused.emplace_back(classes, "without the softmax all classes are needed");
  }
  return equation;
}

/// Backward, classes that cannot be divided are gathered.
Equation cross_entropy_backward(const Operands& operands) {
  Equation equation = cross_entropy(operands);
  for (const auto& [letter, reason] : equation.refused) equation.whole += letter;
  equation.refused.clear();
  equation.heard = {1, 0};
  return equation;
}

Equation cross_entropy_of_parts(const Operands& operands) {
  if (operands.rank() == 0) throw InputError("logits: has no dimension of classes");
  return class_losses(operands, operands.rank() - 1, false);
}

/// Several labels for each row, each with a weight and a loss.
Equation cross_entropy_of_labels(const Operands& operands) {
  Equation equation = cross_entropy_of_parts(operands);
  equation.inputs[1].back() = 'L';
  equation.inputs.push_back(equation.inputs[1]);
  equation.outputs[1].back() = 'L';
  return equation;
}

std::vector<std::string> first_dimensions(const std::vector<TensorArgument>& arguments,
                                          char first) {
  std::vector<std::string> notation;
  for (const TensorArgument& argument : arguments) {
    for (const Tensor& tensor : argument.tensors) {
      notation.emplace_back(tensor.shape.size(), kUndivided);
      if (!tensor.shape.empty()) notation.back().front() = first;
    }
  }
  return notation;
}

/// The first dimension of all tensors is the batch; nothing else is divided.
Equation batch_alone(const Operands& operands) {
  return {.inputs = first_dimensions(operands.inputs(), 'B'),
          .outputs = first_dimensions(operands.outputs(), 'B')};
}

Equation nothing_divided(const Operands& operands) {
  return {.inputs = first_dimensions(operands.inputs(), kUndivided),
          .outputs = first_dimensions(operands.outputs(), kUndivided)};
}

Operator any_tensors(std::string_view name, Equation (*equation)(const Operands&),
                     std::vector<AttributeSlot> attributes = {}) {
  return {.name = name,
          .inputs = {{"inputs", true}},
          .outputs = {{"outputs", true}},
          .attributes = std::move(attributes),
          .equation = equation,
          .lists_are_flat = true,
          .outputs_are_given = true};
}

Operator normalising_by_size(std::string_view name) {
  return {.name = name,
          .inputs = {{"x"}, {"scale"}},
          .outputs = {{"out"}, {"invvar"}},
          .attributes = {{"epsilon", 1e-5}, {"begin_norm_axis", std::int64_t{-1}}},
          .equation = normalised_by_size,
          .backward = normalised_by_size_backward};
}

std::vector<AttributeSlot> attributes_of_parts() {
  return {{"ignore_index", std::int64_t{-100}},
          {"ring_id", std::int64_t{0}},
          {"rank", std::int64_t{0}},
          {"nranks", std::int64_t{0}}};
}

}  // namespace

std::vector<Operator> fused_operators() {
  return {
      {.name = "c_softmax_with_cross_entropy",
       .inputs = {{"logits"}, {"label"}},
       .outputs = {{"softmax"}, {"loss"}},
       .attributes = attributes_of_parts(),
       .equation = cross_entropy_of_parts},
      {.name = "c_softmax_with_multi_label_cross_entropy",
       .inputs = {{"logits"}, {"label"}, {"smooth_weight"}},
       .outputs = {{"softmax"}, {"loss"}},
       .attributes = attributes_of_parts(),
       .equation = cross_entropy_of_labels},
      {.name = "cross_entropy_with_softmax",
       .inputs = {{"logits"}, {"label"}},
       .outputs = {{"softmax"}, {"loss"}},
       .attributes = {{"soft_label", false},
                      {"use_softmax", true},
                      {"numeric_stable_mode", true},
                      {"ignore_index", std::int64_t{-100}},
                      {"axis", std::int64_t{-1}}},
       .equation = cross_entropy,
       .backward = cross_entropy_backward},
      any_tensors("default_data_parallel", batch_alone),
      {.name = "flash_attention",
       .inputs = {{"q"}, {"k"}, {"v"}, {"fixed_seed_offset"}, {"attn_mask"}},
       .outputs = {{"out"}, {"softmax"}, {"softmax_lse"}, {"seed_offset"}},
       .attributes =
           {{"dropout", 0.0}, {"causal", false}, {"return_softmax", false}, {"is_test", false}},
       .equation = attention,
       .backward = attention_backward},
      {.name = "fused_dropout_add",
       .inputs = {{"x"}, {"y"}},
       .outputs = {{"out"}, {"seed_offset"}},
       .attributes = {},
       .equation = added_after_dropout,
       .backward = added_after_dropout_backward},
      normalising_by_size("fused_rms_norm"),
      {.name = "layer_norm",
       .inputs = {{"x"}, {"scale"}, {"bias"}},
       .outputs = {{"out"}, {"mean"}, {"variance"}},
       .attributes = {{"epsilon", 1e-5}, {"begin_norm_axis", std::int64_t{1}}},
       .equation = normalised,
       .backward = normalised_backward},
      any_tensors(kLocalMap, nothing_divided, {{"function", std::string()}}),
      any_tensors("replicated", nothing_divided),
      normalising_by_size("rms_norm"),
      {.name = "scaled_dot_product_attention",
       .inputs = {{"q"}, {"k"}, {"v"}, {"attn_mask"}},
       .outputs = {{"out"}},
       .attributes = {{"causal", false}},
       .equation = attention_by_heads,
       .backward = attention_by_heads_backward},
  };
}

}  // namespace pipewright::spmd
