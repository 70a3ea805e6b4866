#include "core/order/call.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/base/json_fields.hpp"
#include "core/base/trimmed.hpp"
#include "core/order/element_type.hpp"

namespace pipewright {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// "4x1024"; "scalar" has no extents.
std::optional<std::vector<std::int64_t>> parse_shape(std::string_view text) {
  std::vector<std::int64_t> shape;
  if (text == "scalar") return shape;
  while (shape.size() < kMostDimensions) {
    const std::size_t end = std::min(text.find('x'), text.size());
    const auto extent = number(text.substr(0, end));
    if (!extent || *extent > kMostBytes) return std::nullopt;
    shape.push_back(*extent);
    if (end == text.size()) return shape;
    text.remove_prefix(end + 1);
  }
  return std::nullopt;
}

/// ">2" of a SEND, "<0" of a RECV.
bool read_peer(std::string_view text, Call& call) {
  const char sign = call.kind == ActionKind::NamedSend ? '>' : '<';
  if (text.empty() || text.front() != sign) return false;
  const auto rank = number(trimmed(text.substr(1)));
  if (!rank || *rank > std::numeric_limits<std::int32_t>::max()) return false;
  call.peer = RankId(*rank);
  return true;
}

bool read_part(std::size_t place, std::string_view text, Call& call) {
  if (place == 0) {
    if (is_transfer(call.kind)) return read_peer(text, call);
    call.group = text;
    return is_call_name(text);
  }
  if (call.kind == ActionKind::NewGroup) return false;
  if (text.empty()) return place < 3;  // "SEND(>1:x::int64)"
  if (place == 1) call.data = text;
  if (place == 2) call.shape = parse_shape(text);
  if (place == 3) call.dtype = full_type_name(text);
  return place != 2 ? place <= 3 && is_call_name(text) : call.shape.has_value();
}

/// What stands between the brackets.
bool read_parts(std::string_view inside, Call& call) {
  for (std::size_t place = 0;; ++place) {
    const std::size_t end = std::min(inside.find(':'), inside.size());
    if (!read_part(place, trimmed(inside.substr(0, end)), call)) return false;
    if (end == inside.size()) return true;
    inside.remove_prefix(end + 1);
  }
}

}  // namespace

std::optional<ActionKind> call_kind(std::string_view name) {
  for (int k = 0; k < kActionKinds; ++k) {
    const auto kind = static_cast<ActionKind>(k);
    if (is_call(kind) && to_string(kind) == name) return kind;
  }
  return std::nullopt;
}

namespace {

bool is_sign(char c) {
  constexpr std::string_view kSigns = ":;,()@<>\"#";
  return static_cast<unsigned char>(c) <= ' ' || kSigns.find(c) != kSigns.npos;
}

}  // namespace

bool is_call_name(std::string_view text) {
  return !text.empty() && std::ranges::none_of(text, is_sign);
}

std::string as_call_name(std::string_view text) {
  std::string name(text);
  // An asterisk would begin a part's weight.
  std::ranges::replace_if(
      name, [](char c) { return is_sign(c) || c == '*'; }, '_');
  return name;
}

std::string to_string(const Call& call) {
  std::string text(to_string(call.kind));
  if (call.kind != ActionKind::HostSync) {
    text += '(';
    if (is_transfer(call.kind)) {
      text += call.kind == ActionKind::NamedSend ? '>' : '<';
      text += std::to_string(call.peer.value);
    } else {
      text += call.group;
    }
    const bool type = !call.dtype.empty(), shape = call.shape.has_value();
    if (type || shape || !call.data.empty()) text += ":" + call.data;
    if (type || shape)
      text += ":" + (!shape ? "" : call.shape->empty() ? "scalar" : shape_text(*call.shape));
    if (type) text += ":" + call.dtype;
    text += ')';
  }
  return call.stream.empty() ? text : text + "@" + call.stream;
}

std::optional<Call> parse_call(std::string_view text) {
  text = trimmed(text);
  Call call;
  const std::size_t at = text.find('@');
  if (at != text.npos) {
    call.stream = trimmed(text.substr(at + 1));
    if (!is_call_name(call.stream)) return std::nullopt;
    text = trimmed(text.substr(0, at));
  }
  const std::size_t open = std::min(text.find('('), text.size());
  const auto kind = call_kind(trimmed(text.substr(0, open)));
  if (!kind) return std::nullopt;
  call.kind = *kind;
  if (*kind == ActionKind::HostSync)
    return open == text.size() ? std::optional(call) : std::nullopt;
  const bool bracketed = open < text.size() && text.back() == ')';
  if (!bracketed || !read_parts(text.substr(open + 1, text.size() - open - 2), call))
    return std::nullopt;
  if (*kind == ActionKind::NewGroup && !call.stream.empty()) return std::nullopt;
  return call;
}

std::string line_of(const Call& call) {
  if (!call.stream.empty()) return "stream " + call.stream;
  return is_group_collective(call.kind) ? "group " + call.group : "";
}

std::string_view difference(const Call& a, const Call& b) {
  if (a.kind != b.kind && !(is_transfer(a.kind) && is_transfer(b.kind))) return "kind";
  if (a.group != b.group) return "group";
  if (a.data != b.data) return "data";
  if (a.shape && b.shape && *a.shape != *b.shape) return "shape";
  if (!a.dtype.empty() && !b.dtype.empty() && a.dtype != b.dtype) return "type";
  return "";
}

std::int64_t bytes_of(const Call& call) {
  const ElementType* type = element_type(call.dtype);
  if (!call.shape || type == nullptr) return 0;
  std::int64_t bytes = type->bytes;
  for (const std::int64_t extent : *call.shape) {
    if (extent != 0 && bytes > kMostBytes / extent) return kMostBytes;
    bytes *= extent;
  }
  return bytes;
}

Action CallTable::action_of(Call call) {
  const auto [known, is_new] = number_of_.try_emplace(to_string(call), calls_.size());
  const Action action{.kind = call.kind,
                      .stage = {},
                      .micro_batch = MicroBatchId(static_cast<std::int64_t>(known->second))};
  if (is_new) calls_.push_back(std::move(call));
  return action;
}

}  // namespace pipewright
