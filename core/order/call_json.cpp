#include "core/order/call_json.hpp"

#include <string_view>

#include "core/base/json_fields.hpp"
#include "core/base/suggest.hpp"
#include "core/order/cells.hpp"
#include "core/order/element_type.hpp"
#include "core/order/message_format.hpp"

namespace pipewright {
namespace {

std::vector<std::string_view> kind_names() {
  std::vector<std::string_view> names = {kBatchName};
  for (int k = 0; k < kActionKinds; ++k) {
    if (is_call(static_cast<ActionKind>(k))) names.push_back(to_string(static_cast<ActionKind>(k)));
  }
  return names;
}

ActionKind read_call_kind(const JsonCursor& value) {
  const std::string name = value.string();
  if (const auto kind = call_kind(name)) return *kind;
  value.fail("the kind of a call, such as \"ALL_REDUCE\" or \"SEND\"" +
             did_you_mean(name, kind_names()));
}

/// A name; a number is one too.
std::string read_call_name(const JsonCursor& value) {
  if (value.value().is_number_integer())
    return std::to_string(value.integer(0, std::int64_t{1} << 53));
  std::string name = value.string();
  if (!is_call_name(name)) value.fail("a name without spaces and without :;,()@<>\"#");
  return name;
}

void read_name_if_there(const JsonCursor& object, std::string_view key, std::string& name) {
  if (const auto value = object.find(key)) name = read_call_name(*value);
}

void read_format(const JsonCursor& object, Call& call) {
  if (const auto shape = object.find("shape")) call.shape = read_tensor_shape(*shape);
  if (const auto dtype = object.find("dtype")) call.dtype = full_type_name(read_call_name(*dtype));
}

Call read_call(const JsonCursor& object) {
  Call call{.kind = read_call_kind(object.at("kind"))};
  if (call.kind == ActionKind::HostSync) {
    object.only({"kind", "stream"});
  } else if (call.kind == ActionKind::NewGroup) {
    object.only({"kind", "group"});
    call.group = read_call_name(object.at("group"));
    return call;
  } else if (is_transfer(call.kind)) {
    const std::string_view peer = is_send(call.kind) ? "to" : "from";
    object.only({"kind", peer, "name", "shape", "dtype", "stream"});
    call.peer = RankId(read_count(object.at(peer), 0, kMostGroupRanks));
    read_name_if_there(object, "name", call.data);
  } else {
    object.only({"kind", "group", "id", "shape", "dtype", "stream"});
    call.group = read_call_name(object.at("group"));
    read_name_if_there(object, "id", call.data);
  }
  read_format(object, call);
  read_name_if_there(object, "stream", call.stream);
  return call;
}

std::vector<Cell> read_end(const JsonCursor& value, CallTable& calls) {
  std::vector<Cell> end = value.value().is_object() ? read_call_cells(value, calls)
                                                    : parse_cells(value.string(), calls);
  if (end.size() != 1 || end.front().partner || !is_transfer(end.front().action.kind))
    value.fail("an end of a transfer, such as \"0SEND_F0\" or {\"kind\": \"SEND\", \"to\": 1}");
  return end;
}

}  // namespace

std::vector<Cell> read_call_cells(const JsonCursor& value, CallTable& calls) {
  const JsonCursor kind = value.at("kind");
  if (!kind.value().is_string() || kind.string() != kBatchName)
    return {{calls.action_of(read_call(value)), std::nullopt}};
  value.only({"kind", "ends"});
  std::vector<Cell> cells;
  for (const JsonCursor& element : value.at("ends").elements()) {
    cells.push_back(read_end(element, calls).front());
    cells.back().batched = true;
  }
  if (cells.empty()) value.at("ends").fail("one end or more");
  cells.back().batched = false;
  return cells;
}

}  // namespace pipewright
