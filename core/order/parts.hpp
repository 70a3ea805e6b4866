// Of what the actions of a stage and kind consist (docs/semantics.md §3.4), and its text form:
// "attention*3 ALL_REDUCE(tp:a:4x8:float32) mlp*5 &ALL_TO_ALL(ep:b)*2 end".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/order/action.hpp"
#include "core/order/call.hpp"

namespace pipewright {

inline constexpr std::int64_t kMostPartWeight = 1'000'000'000'000;
inline constexpr std::size_t kMostParts = 10'000;  // of an action

/// A computation (of kind Part, named by Call::data) or a collective.
struct Part {
  Call call;
  std::int64_t weight = 0;  // of a computation from 1; of a call 0 where it has none
  bool beside = false;      // a call: the part behind it does not wait for it, what follows does

  bool is_computation() const { return call.kind == ActionKind::Part; }
  bool operator==(const Part&) const = default;
};

struct ActionParts {
  StageId stage;
  ActionKind kind = ActionKind::F;  // F, I, W or B
  std::vector<Part> parts;

  bool operator==(const ActionParts&) const = default;
};

/// Devices of a rank that differ in one way, "tp", "cp" or "ep".
struct MeshAxis {
  std::string name;
  int devices = 1;

  bool operator==(const MeshAxis&) const = default;
};

/// nullptr where the action, which may be of any kind, has none.
const ActionParts* parts_of(const std::vector<ActionParts>& all, const Action& action);
const MeshAxis* axis_of(const std::vector<MeshAxis>& mesh, std::string_view group);
/// Of a rank: the product of its axes.
int devices_of_rank(const std::vector<MeshAxis>& mesh);
/// From a device of a rank to the next in an axis: in the first axis they are neighbours (§3.4).
int stride_of(const std::vector<MeshAxis>& mesh, const MeshAxis& axis);

/// Devices that are a group: so many, each so far from the next.
struct AxisSpan {
  int devices = 1, stride = 1;

  bool operator==(const AxisSpan&) const = default;
};
/// Those of a group called like an axis, or like several that follow one another, joined by "+":
/// "tp+ep". nullopt: the mesh has no such axes.
std::optional<AxisSpan> span_of(const std::vector<MeshAxis>& mesh, std::string_view group);

/// "0F"
std::string name_of(const ActionParts& parts);
std::string to_string(const Part& part);

/// Appends what "0F" and the texts of its parts say; returns what is wrong, "" if nothing.
std::string add_parts(std::string_view name, const std::vector<std::string>& texts,
                      std::vector<ActionParts>& all);
std::string add_axis(std::string name, std::int64_t devices, std::vector<MeshAxis>& mesh);

}  // namespace pipewright
