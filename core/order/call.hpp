// A call: what an order says by name and not by stage and micro-batch, and its text form
// (docs/semantics.md §3.3). What ranks tell one another inside a stage, or beside the pipeline.
//
//   ALL_REDUCE(tp:7)  ALL_TO_ALL(ep:0:4x1024:bfloat16)@2  NEW_GROUP(ep)  HOST_SYNC
//   SEND(>2:skip:4x1024:bfloat16)  RECV(<0:skip)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.hpp"
#include "core/order/action.hpp"

namespace pipewright {

struct Call {
  ActionKind kind = ActionKind::AllReduce;
  std::string group = {};                               // of a collective, and NEW_GROUP
  std::string data = {};                                // which data it is; "": not said
  std::optional<std::vector<std::int64_t>> shape = {};  // row major; nullopt: not said
  std::string dtype = {};    // "float32", or any other word; "": not said
  std::string stream = {};   // "": none is named
  RankId peer = RankId(-1);  // of SEND and RECV

  bool operator==(const Call&) const = default;
};

std::string to_string(const Call& call);
/// Which line of its rank it stands in (docs/semantics.md §3.3): "stream 2", "group ep"; "" for a
/// transfer that names no stream, and for what is no collective of a group.
std::string line_of(const Call& call);
/// nullopt where the text is no call. Spaces around every part are allowed; a type may have a
/// usual short name ("bf16").
std::optional<Call> parse_call(std::string_view text);
/// What of two that meet is not the same, as far as both say it: "kind", "group", "data", "shape",
/// "type"; "" if nothing.
std::string_view difference(const Call& a, const Call& b);
/// Of its shape and type; 0 where it does not say both, or names a type that is not known.
std::int64_t bytes_of(const Call& call);

/// The kind of that name ("ALL_REDUCE", "SEND"); nullopt: none of a call is called so.
std::optional<ActionKind> call_kind(std::string_view name);
/// A name that a call may have: not empty, without the signs of the text form.
bool is_call_name(std::string_view text);
/// The text with an underscore for each character that such a name does not have.
std::string as_call_name(std::string_view text);

inline constexpr int kMostGroupRanks = 65535;

/// The ranks of a group, ascending.
struct Group {
  std::string name;
  std::vector<RankId> ranks;

  bool operator==(const Group&) const = default;
};

/// Calls by number, each once; an Action of a call's kind has its number as micro-batch.
class CallTable {
 public:
  Action action_of(Call call);
  std::vector<Call> take() { return std::move(calls_); }

 private:
  std::vector<Call> calls_;
  std::map<std::string, std::size_t> number_of_;  // by text
};

}  // namespace pipewright
