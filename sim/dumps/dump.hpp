// A Flight Recorder dump of PyTorch: what one rank has called of its process groups, in order, and
// how far each call has come. As torch.distributed writes it on a time-out (a pickle) or as
// _dump_fr_trace_json() and _dump_nccl_trace_json() give it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.hpp"

namespace pipewright::sim {

enum class CallState : std::uint8_t { Scheduled, Started, Completed };
std::string_view to_string(CallState state);

/// What goes into a call, or comes out of it: by tensor its extents, and its type as a call of an
/// order names it ("float32").
struct Tensors {
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<std::string> types;

  bool operator==(const Tensors&) const = default;
};

struct RecordedCall {
  static constexpr std::int64_t kNoBatch = -1;

  std::int64_t record = 0;  // its number among the rank's calls
  std::string backend;      // "gloo"
  std::string operation;    // "all_reduce", "send"
  std::size_t group = 0;    // in Dump::groups
  /// The number of the call among those of the group; of transfers, which no two ranks count alike,
  /// that of the rank's own, or of the batch that it is in.
  std::int64_t number = 0;
  bool counts_as_transfer = false;           // the number is one of transfers
  bool is_transfer = false;                  // a SEND or a RECV
  std::int64_t source = 0, destination = 0;  // of a transfer, by their places in the group
  Tensors inputs, outputs;
  CallState state = CallState::Scheduled;
  std::string place;  // "train.py:31 (step)": who called, and from where; "": not recorded
  std::string stack;  // the same of all who called whom
  std::int64_t batch = kNoBatch;  // calls that are one operation have one number
};

/// How it is known who is in a group.
enum class Members : std::uint8_t {
  Recorded,  // a dump says it, or it is the group of all
  Seen,      // who has called it; gloo records no members
  Assumed,   // all ranks, for those that have called it wait for somebody else
};

struct RecordedGroup {
  std::string name, description;
  std::vector<RankId> ranks;  // by place in the group; of a dump: empty where it does not say
  Members members = Members::Recorded;

  /// The group of all ranks.
  bool is_default() const { return description == "default_pg"; }
  bool operator==(const RecordedGroup&) const = default;
};

struct Dump {
  std::string file;
  RankId rank;
  std::string version;  // of the format
  std::vector<RecordedGroup> groups;
  std::vector<RecordedCall> calls;  // in the order in which they were made
  bool whole = true;                // all calls since the beginning are there
  std::vector<RankId> others;       // ranks of the job that it names without their group
};

/// A dump does not say whose it is: where no rank is given it is the number at the end of the
/// file's name, or the only one in it. Throws InputError with file and place for what is no dump.
Dump read_dump(std::string_view bytes, const std::string& file, std::optional<RankId> rank = {});

}  // namespace pipewright::sim
