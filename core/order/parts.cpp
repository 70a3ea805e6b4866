#include "core/order/parts.hpp"

#include <algorithm>
#include <charconv>

#include "core/base/most_devices.hpp"

namespace pipewright {
namespace {

std::string in_quotes(std::string_view text) { return "\"" + std::string(text) + "\""; }

/// What the name of a list says; its kind is Idle where that is no such name.
ActionParts parse_name(std::string_view name) {
  ActionParts parts{.stage = {}, .kind = ActionKind::Idle, .parts = {}};
  const auto cell = parse_cell(std::string(name) + "0");
  const bool is_one = cell && !cell->partner && is_compute(cell->action.kind) &&
                      cell->action.version < 0 && !name.empty() && name.back() >= 'A';
  if (is_one) parts = {cell->action.stage, cell->action.kind, {}};
  return parts;
}

/// In front of a call that goes on beside the part behind it.
constexpr char kBeside = '&';

/// The name of a computation, or a collective.
bool parse_unweighted(std::string_view text, Part& part) {
  const bool is_beside = text.starts_with(kBeside);
  if (text.find('(') == text.npos) {
    part = {{.kind = ActionKind::Part, .data = std::string(text)}, 1};
    return is_call_name(text);
  }
  const auto call = parse_call(text.substr(is_beside ? 1 : 0));
  if (!call || !is_group_collective(call->kind)) return false;
  part = {*call, 0, is_beside};
  return true;
}

/// "mlp", "mlp*5".
bool parse_part(std::string_view text, Part& part) {
  const std::size_t star = std::min(text.find('*'), text.size());
  if (!parse_unweighted(text.substr(0, star), part)) return false;
  if (star == text.size()) return true;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + star + 1, end, part.weight);
  return error == std::errc() && rest == end && part.weight >= 1 && part.weight <= kMostPartWeight;
}

}  // namespace

const ActionParts* parts_of(const std::vector<ActionParts>& all, const Action& action) {
  const auto found = std::ranges::find_if(all, [&](const ActionParts& one) {
    return one.kind == action.kind && one.stage == action.stage;
  });
  return found == all.end() ? nullptr : &*found;
}

const MeshAxis* axis_of(const std::vector<MeshAxis>& mesh, std::string_view group) {
  const auto found = std::ranges::find(mesh, group, &MeshAxis::name);
  return found == mesh.end() ? nullptr : &*found;
}

int devices_of_rank(const std::vector<MeshAxis>& mesh) {
  int devices = 1;
  for (const MeshAxis& axis : mesh) devices *= axis.devices;
  return devices;
}

int stride_of(const std::vector<MeshAxis>& mesh, const MeshAxis& axis) {
  int stride = 1;
  for (auto before = mesh.begin(); before->name != axis.name; ++before) stride *= before->devices;
  return stride;
}

std::optional<AxisSpan> span_of(const std::vector<MeshAxis>& mesh, std::string_view group) {
  if (const MeshAxis* const axis = axis_of(mesh, group))
    return AxisSpan{axis->devices, stride_of(mesh, *axis)};
  if (group.find('+') == group.npos) return std::nullopt;
  for (auto first = mesh.begin(); first != mesh.end(); ++first) {
    std::string name = first->name;
    int devices = first->devices;
    for (auto next = first + 1; next != mesh.end() && name.size() < group.size(); ++next) {
      name += "+" + next->name;
      devices *= next->devices;
      if (name == group) return AxisSpan{devices, stride_of(mesh, *first)};
    }
  }
  return std::nullopt;
}

std::string name_of(const ActionParts& parts) {
  return std::to_string(parts.stage.value) + std::string(to_string(parts.kind));
}

std::string to_string(const Part& part) {
  std::string name = part.is_computation() ? part.call.data : to_string(part.call);
  if (part.beside) name.insert(name.begin(), kBeside);
  const bool is_said = part.weight != (part.is_computation() ? 1 : 0);
  return name + (is_said ? "*" + std::to_string(part.weight) : "");
}

std::string add_parts(std::string_view name, const std::vector<std::string>& texts,
                      std::vector<ActionParts>& all) {
  ActionParts parts = parse_name(name);
  if (parts.kind == ActionKind::Idle)
    return in_quotes(name) + " is no stage with F, I, W or B, such as \"0F\"";
  if (parts_of(all, {.kind = parts.kind, .stage = parts.stage, .micro_batch = {}}) != nullptr)
    return "the parts of " + std::string(name) + " are given twice";
  for (const std::string& text : texts) {
    if (!parse_part(text, parts.parts.emplace_back()))
      return in_quotes(text) +
             " is no part: expected a computation and its weight, such as \"mlp*5\", or a "
             "collective, with or without a weight, such as \"ALL_REDUCE(tp:a:4x8:float32)\"";
  }
  if (parts.parts.empty() || parts.parts.size() > kMostParts)
    return std::string(name) + " needs 1 to " + std::to_string(kMostParts) + " parts";
  if (std::ranges::none_of(parts.parts, &Part::is_computation))
    return std::string(name) + " has no computation among its parts";
  all.push_back(std::move(parts));
  return "";
}

std::string add_axis(std::string name, std::int64_t devices, std::vector<MeshAxis>& mesh) {
  if (!is_call_name(name)) return in_quotes(name) + " is no name of an axis";
  if (axis_of(mesh, name) != nullptr) return "axis " + name + " is given twice";
  std::int64_t all = devices;
  for (const MeshAxis& axis : mesh) all *= axis.devices;
  if (devices < 1 || all > kMostDevices)
    return "axis " + name + " needs 1 to " + std::to_string(kMostDevices) +
           " devices, all axes together too";
  mesh.push_back({std::move(name), static_cast<int>(devices)});
  return "";
}

}  // namespace pipewright
