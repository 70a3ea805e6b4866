#include "core/onnx/model.hpp"

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/protobuf.hpp"

namespace pipewright::onnx {
namespace {

constexpr std::size_t kMostNodes = 100'000;

std::string text_of(const WireMessage& message, const WireField& field) {
  return std::string(message.bytes_of(field, "a text"));
}

/// StringStringEntryProto, into a map.
void add_entry(std::string_view bytes, const WireFile& file,
               std::map<std::string, std::string>& entries) {
  WireMessage message(bytes, file);
  std::string key, value;
  while (const auto field = message.next()) {
    if (field->number == 1) key = text_of(message, *field);
    if (field->number == 2) value = text_of(message, *field);
  }
  entries[key] = value;
}

std::int64_t number_of_text(const std::string& text, const TensorData& tensor,
                            const WireFile& file) {
  std::int64_t value = 0;
  for (const char digit : text) {
    const bool fits = digit >= '0' && digit <= '9' && value < std::int64_t{1} << 56;
    if (!fits) {
      throw InputError(file.name, "",
                       "tensor \"" + tensor.name +
                           "\": expected its offset and "
                           "length in another file as numbers, found \"" +
                           text + "\"");
    }
    value = 10 * value + (digit - '0');
  }
  return value;
}

ExternalData external_data(const std::map<std::string, std::string>& entries,
                           const TensorData& tensor, const WireFile& file) {
  ExternalData data;
  for (const auto& [key, value] : entries) {
    if (key == "location") data.location = value;
    if (key == "offset") data.offset = number_of_text(value, tensor, file);
    if (key == "length") data.length = number_of_text(value, tensor, file);
  }
  return data;
}

/// TensorProto
TensorData read_tensor(std::string_view bytes, const WireFile& file) {
  WireMessage message(bytes, file);
  TensorData tensor;
  std::map<std::string, std::string> external;
  bool is_external = false;
  while (const auto field = message.next()) {
    switch (field->number) {
      case 1:
        message.add_integers(*field, "sizes", tensor.dims);
        break;
      case 2:
        tensor.type = static_cast<DataType>(message.integer_of(*field, "a type") & 0xffff);
        break;
      case 4:
        message.add_floats(*field, "floats", tensor.floats);
        break;
      case 5:
      case 7:
      case 11:
        message.add_integers(*field, "whole numbers", tensor.integers);
        break;
      case 8:
        tensor.name = text_of(message, *field);
        break;
      case 9:
        tensor.raw = message.bytes_of(*field, "bytes");
        break;
      case 10:
        message.add_doubles(*field, "numbers", tensor.doubles);
        break;
      case 13:
        add_entry(message.bytes_of(*field, "an entry"), file, external);
        break;
      case 14:
        is_external = message.integer_of(*field, "a number") == 1;
        break;
      default:
        break;
    }
  }
  for (const std::int64_t size : tensor.dims) {
    if (size < 0) message.fail(bytes.data(), "tensor \"" + tensor.name + "\": a size is negative");
  }
  if (is_external) tensor.external = external_data(external, tensor, file);
  return tensor;
}

/// AttributeProto
Attribute read_attribute(std::string_view bytes, const WireFile& file) {
  WireMessage message(bytes, file);
  Attribute attribute;
  while (const auto field = message.next()) {
    switch (field->number) {
      case 1:
        attribute.name = text_of(message, *field);
        break;
      case 2:
        attribute.number = message.float_of(*field, "a number");
        break;
      case 3:
        attribute.integer = message.integer_of(*field, "a whole number");
        break;
      case 4:
        attribute.text = text_of(message, *field);
        break;
      case 5:
        attribute.tensor = read_tensor(message.bytes_of(*field, "a tensor"), file);
        break;
      case 7:
        message.add_floats(*field, "numbers", attribute.numbers);
        break;
      case 8:
        message.add_integers(*field, "whole numbers", attribute.integers);
        break;
      case 20:
        attribute.type = static_cast<int>(message.integer_of(*field, "a type") & 0xff);
        break;
      default:
        break;
    }
  }
  return attribute;
}

/// NodeProto
Node read_node(std::string_view bytes, const WireFile& file) {
  WireMessage message(bytes, file);
  Node node;
  while (const auto field = message.next()) {
    switch (field->number) {
      case 1:
        node.inputs.push_back(text_of(message, *field));
        break;
      case 2:
        node.outputs.push_back(text_of(message, *field));
        break;
      case 3:
        node.name = text_of(message, *field);
        break;
      case 4:
        node.type = text_of(message, *field);
        break;
      case 5:
        node.attributes.push_back(read_attribute(message.bytes_of(*field, "an attribute"), file));
        break;
      case 7:
        node.domain = text_of(message, *field);
        break;
      default:
        break;
    }
  }
  return node;
}

/// TensorShapeProto.Dimension
Dimension read_dimension(std::string_view bytes, const WireFile& file) {
  WireMessage message(bytes, file);
  Dimension dimension;
  while (const auto field = message.next()) {
    if (field->number == 1) dimension.size = message.integer_of(*field, "a size");
    if (field->number == 2) dimension.word = text_of(message, *field);
  }
  return dimension;
}

/// The one message in field `number` of a message; none where there is none.
std::optional<std::string_view> message_in(std::string_view bytes, std::uint32_t number,
                                           const WireFile& file) {
  WireMessage message(bytes, file);
  std::optional<std::string_view> found;
  while (const auto field = message.next()) {
    if (field->number == number) found = message.bytes_of(*field, "a message");
  }
  return found;
}

/// TypeProto.Tensor
void read_tensor_type(std::string_view bytes, const WireFile& file, ValueInfo& value) {
  WireMessage message(bytes, file);
  while (const auto field = message.next()) {
    if (field->number == 1) {
      value.type = static_cast<DataType>(message.integer_of(*field, "a type") & 0xffff);
    } else if (field->number == 2) {
      value.shape.emplace();
      WireMessage dims(message.bytes_of(*field, "a shape"), file);
      while (const auto dim = dims.next()) {
        if (dim->number != 1) continue;
        value.shape->push_back(read_dimension(dims.bytes_of(*dim, "a dimension"), file));
      }
    }
  }
}

/// ValueInfoProto
ValueInfo read_value(std::string_view bytes, const WireFile& file) {
  WireMessage message(bytes, file);
  ValueInfo value;
  while (const auto field = message.next()) {
    if (field->number == 1) value.name = text_of(message, *field);
    if (field->number == 2) {
      const auto tensor = message_in(message.bytes_of(*field, "a type"), 1, file);
      if (tensor) read_tensor_type(*tensor, file, value);
    }
    if (field->number == 4) {
      add_entry(message.bytes_of(*field, "an entry"), file, value.metadata);
    }
  }
  return value;
}

/// GraphProto
Graph read_graph(std::string_view bytes, const WireFile& file) {
  WireMessage message(bytes, file);
  Graph graph;
  while (const auto field = message.next()) {
    if (field->type != WireType::Delimited) continue;
    switch (field->number) {
      case 1:
        if (graph.nodes.size() == kMostNodes) {
          message.fail(field->bytes.data(), "has more than 100000 nodes");
        }
        graph.nodes.push_back(read_node(field->bytes, file));
        break;
      case 5:
        graph.initializers.push_back(read_tensor(field->bytes, file));
        break;
      case 11:
        graph.inputs.push_back(read_value(field->bytes, file));
        break;
      case 12:
        graph.outputs.push_back(read_value(field->bytes, file));
        break;
      case 13:
        graph.values.push_back(read_value(field->bytes, file));
        break;
      case 15:
        message.fail(field->bytes.data(), "has a sparse initializer, which is not read here");
      default:
        break;
    }
  }
  return graph;
}

/// OperatorSetIdProto
void add_opset(std::string_view bytes, const WireFile& file, Model& model) {
  WireMessage message(bytes, file);
  std::string domain;
  std::int64_t version = 0;
  while (const auto field = message.next()) {
    if (field->number == 1) domain = text_of(message, *field);
    if (field->number == 2) version = message.integer_of(*field, "a version");
  }
  model.opsets[domain == "ai.onnx" ? "" : domain] = version;
}

}  // namespace

bool is_float(DataType type) {
  return type == DataType::Float || type == DataType::Double || type == DataType::Float16 ||
         type == DataType::Bfloat16;
}

std::int64_t TensorData::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : dims) {
    if (size > 0 && count > std::numeric_limits<std::int64_t>::max() / size) {
      return std::numeric_limits<std::int64_t>::max();
    }
    count *= size;
  }
  return count;
}

Model parse_model(std::string_view bytes, const std::string& file) {
  const WireFile wire{file, bytes.data(), "an ONNX file"};
  WireMessage message(bytes, wire);
  Model model;
  std::optional<std::string_view> graph;
  while (const auto field = message.next()) {
    if (field->number == 7) graph = message.bytes_of(*field, "a graph");
    if (field->number == 8) add_opset(message.bytes_of(*field, "an operator set"), wire, model);
  }
  if (!graph) throw InputError(file, "", "has no graph; is it an ONNX model?");
  model.graph = read_graph(*graph, wire);
  return model;
}

}  // namespace pipewright::onnx
