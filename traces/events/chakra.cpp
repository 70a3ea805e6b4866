#include "traces/events/chakra.hpp"

#include <algorithm>
#include <charconv>

#include "core/base/error.hpp"
#include "core/base/protobuf.hpp"
#include "traces/events/raw_trace.hpp"

namespace pipewright::traces {
namespace {

constexpr std::string_view kSuffix = ".et";

/// Without ".gz"; empty where it is not named like a file of Chakra.
std::string_view stem_of(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(kSuffix) ? path.substr(0, path.size() - kSuffix.size()) : "";
}

/// Numbers of the enumeration NodeType.
ChakraKind kind_of(std::int64_t type) {
  switch (type) {
    case 4:
      return ChakraKind::Computation;
    case 5:
      return ChakraKind::Send;
    case 6:
      return ChakraKind::Receive;
    case 7:
      return ChakraKind::Collective;
    default:
      return ChakraKind::Other;
  }
}

struct Attribute {
  std::string_view name;
  std::optional<std::int64_t> number;  // of an attribute that is one, or a truth value
};

/// AttributeProto: a name, and a value whose field says how it is written. Writers differ in what
/// they take for the same attribute.
Attribute attribute_of(std::string_view bytes, const WireFile& file) {
  WireMessage message(bytes, file);
  Attribute attribute;
  while (const auto field = message.next()) {
    switch (field->number) {
      case 1:
        attribute.name = message.bytes_of(*field, "the name of an attribute");
        break;
      case 7:   // int32_val
      case 9:   // int64_val
      case 11:  // uint32_val
      case 13:  // uint64_val
      case 27:  // bool_val
        attribute.number = message.integer_of(*field, "a number");
        break;
      case 15:    // sint32_val
      case 17: {  // sint64_val: the sign is the lowest bit
        const auto value = static_cast<std::uint64_t>(message.integer_of(*field, "a number"));
        attribute.number = static_cast<std::int64_t>((value >> 1) ^ (0 - (value & 1)));
        break;
      }
      case 19:  // fixed32_val
      case 21:  // fixed64_val
      case 23:  // sfixed32_val
      case 25:  // sfixed64_val
        if (field->type == WireType::Delimited) (void)message.integer_of(*field, "a number");
        attribute.number = static_cast<std::int64_t>(field->value);
        break;
      default:
        break;
    }
  }
  return attribute;
}

void take(const Attribute& attribute, ChakraNode& node) {
  if (attribute.name == "is_cpu_op") node.on_host = attribute.number.value_or(0) != 0;
  if (attribute.name == "comm_src") node.source = attribute.number;
  if (attribute.name == "comm_dst") node.target = attribute.number;
  if (attribute.name == "comm_tag") node.tag = attribute.number;
  if (attribute.name == "comm_size") node.bytes = attribute.number;
}

void add_ids(const WireMessage& message, const WireField& field, std::vector<std::uint64_t>& ids) {
  std::vector<std::int64_t> numbers;
  message.add_integers(field, "the ids of nodes", numbers);
  for (const std::int64_t number : numbers) ids.push_back(static_cast<std::uint64_t>(number));
}

class NodeReader {
 public:
  explicit NodeReader(const WireFile& file) : file_(file) {}

  ChakraNode read(WireMessage message) const {
    ChakraNode node;
    while (const auto field = message.next()) {
      switch (field->number) {
        case 1:
          node.id = static_cast<std::uint64_t>(message.integer_of(*field, "a node's id"));
          break;
        case 2:
          node.name = message.bytes_of(*field, "a node's name");
          break;
        case 3:
          node.kind = kind_of(message.integer_of(*field, "a node's type"));
          break;
        case 4:
          add_ids(message, *field, node.control_needs);
          break;
        case 5:
          add_ids(message, *field, node.data_needs);
          break;
        case 6:
          node.start_ns = nanoseconds(message.integer_of(*field, "a start"), node);
          break;
        case 7:
          node.duration_ns = nanoseconds(message.integer_of(*field, "a duration"), node);
          break;
        case 10:
          take(attribute_of(message.bytes_of(*field, "an attribute"), file_), node);
          break;
        default:
          break;
      }
    }
    return node;
  }

 private:
  std::int64_t nanoseconds(std::int64_t microseconds, const ChakraNode& node) const {
    constexpr std::int64_t kMost = (std::int64_t{1} << 60) / 1000;  // sums of two fit 64 bits
    if (microseconds >= 0 && microseconds <= kMost) return microseconds * 1000;
    throw InputError(file_.name, "node " + std::to_string(node.id),
                     "has a time of " + std::to_string(static_cast<std::uint64_t>(microseconds)) +
                         " us; expected start_time_micros and duration_micros of at most 36 years");
  }

  const WireFile& file_;
};

const ChakraNode* find_node(const std::vector<ChakraNode>& nodes, std::uint64_t id) {
  const auto found = std::lower_bound(
      nodes.begin(), nodes.end(), id,
      [](const ChakraNode& node, std::uint64_t wanted) { return node.id < wanted; });
  return found == nodes.end() || found->id != id ? nullptr : &*found;
}

/// Sorts the nodes. Whom a caller names (control_needs) may have been left out of the file, as
/// Chakra's converter does; whose data it takes may not.
void settle(ChakraTrace& trace) {
  std::vector<ChakraNode>& nodes = trace.nodes;
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const ChakraNode& a, const ChakraNode& b) { return a.id < b.id; });
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    if (nodes[i - 1].id != nodes[i].id) continue;
    throw InputError(trace.file, "node " + std::to_string(nodes[i].id),
                     "is there twice; expected nodes with ids of their own");
  }
  for (ChakraNode& node : nodes) {
    std::erase_if(node.control_needs,
                  [&](std::uint64_t id) { return find_node(nodes, id) == nullptr; });
    for (const std::uint64_t id : node.data_needs) {
      if (find_node(nodes, id) != nullptr) continue;
      throw InputError(trace.file, "node " + std::to_string(node.id),
                       "needs data of node " + std::to_string(id) +
                           ", which is not in the file; give the file as it was written");
    }
  }
}

}  // namespace

bool is_chakra_file(std::string_view path) { return !stem_of(path).empty(); }

std::optional<int> rank_of_chakra_file(std::string_view path) {
  const std::string_view stem = stem_of(path);
  const auto dot = stem.find_last_of("./");
  if (dot == stem.npos || stem[dot] != '.') return std::nullopt;
  const std::string_view digits = stem.substr(dot + 1);
  int rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank < 0) return std::nullopt;
  return rank;
}

ChakraTrace parse_chakra(std::string_view bytes, const std::string& file, int rank) {
  const WireFile wire{file, bytes.data(), "a Chakra execution trace"};
  WireStream stream(bytes, wire);
  ChakraTrace trace{.file = file, .rank = rank, .nodes = {}};
  auto about = stream.next();  // GlobalMetadata: nothing of it is used
  if (!about) throw InputError(file, "", "is empty; expected a Chakra execution trace");
  while (about->next()) continue;
  const NodeReader reader(wire);
  while (auto message = stream.next()) {
    trace.nodes.push_back(reader.read(std::move(*message)));
    if (trace.nodes.size() > kMostEvents)
      throw InputError(file, "", "holds more than 5 million nodes; record a few steps");
  }
  settle(trace);
  return trace;
}

}  // namespace pipewright::traces
