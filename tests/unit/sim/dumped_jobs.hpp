// Flight Recorder dumps, made by hand in PyTorch's documented form.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.hpp"
#include "sim/dumps/explanation_text.hpp"

namespace pipewright::sim {
namespace dumps_test {

using Ranks = std::vector<int>;
using Sizes = std::vector<std::int64_t>;

/// A call of one rank.
struct Made {
  std::string group, operation;
  std::string state = "started";
  Sizes sizes = {8};
  std::string type = "Float";
  std::string file = {};  // of whoever called
  int line = 0;
  Sizes outputs = {};  // where they are others
  bool retired = false;
};

/// The dumps of a job, as PyTorch counts and writes them.
class Job {
 public:
  explicit Job(int ranks, std::string backend = "gloo")
      : backend_(std::move(backend)), own_(ranks) {
    Ranks all(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
    group("0", "default_pg", all);
  }

  void group(const std::string& name, const std::string& description, const Ranks& ranks) {
    for (const int rank : ranks) {
      own_[static_cast<std::size_t>(rank)].groups[name] = {
          {"name", name}, {"desc", description}, {"ranks", Json(ranks).dump()}};
    }
  }

  void call(int rank, const Made& made) {
    Own& own = own_[static_cast<std::size_t>(rank)];
    const bool transfer = made.operation.find(' ') != made.operation.npos;
    auto& number = (transfer ? own.transfers : own.collectives)[made.group];
    entry(rank, made, transfer, ++number);
  }
  /// Of each rank the same.
  void all(const Ranks& ranks, const Made& made) {
    for (const int rank : ranks) call(rank, made);
  }

  /// Transfers that are one operation, with the closing entry, whose state counts.
  void batch(int rank, const std::vector<Made>& made) {
    const std::int64_t number =
        ++own_[static_cast<std::size_t>(rank)].transfers[made.front().group];
    for (Made one : made) {
      one.state = "scheduled";
      entry(rank, one, true, number);
    }
    Made closing = made.back();
    closing.operation = "coalesced";
    entry(rank, closing, true, number);
  }

  /// The rank's dump has lost its first calls.
  void forget(int rank, std::size_t calls) {
    Json& entries = own_[static_cast<std::size_t>(rank)].entries;
    entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(calls));
  }

  Json document(int rank) const {
    const Own& own = own_[static_cast<std::size_t>(rank)];
    Json groups = Json::object();
    for (const auto& [name, group] : own.groups) {
      if (says_members_) groups[name] = group;
    }
    if (!says_members_) groups[""] = {{"name", ""}, {"desc", ""}, {"ranks", "[]"}};
    return {{"version", "2.10"},
            {"pg_config", groups},
            {"pg_status", Json::object()},
            {"entries", own.entries}};
  }
  Dump dump(int rank) const {
    return read_dump(document(rank).dump(), "nccl_trace_rank_" + std::to_string(rank));
  }
  Explanation explained(const NamedRanks& named = {}) const {
    std::vector<Dump> dumps;
    for (int r = 0; r < static_cast<int>(own_.size()); ++r) dumps.push_back(dump(r));
    return explain(join_dumps(std::move(dumps), named));
  }

  void leave_members_out() { says_members_ = false; }

 private:
  struct Own {
    std::map<std::string, Json> groups;
    std::map<std::string, std::int64_t> collectives, transfers;
    Json entries = Json::array();
    std::int64_t records = 0;
  };

  void entry(int rank, const Made& made, bool transfer, std::int64_t number) {
    Own& own = own_[static_cast<std::size_t>(rank)];
    const auto& outputs = made.outputs.empty() ? made.sizes : made.outputs;
    Json entry = {{"record_id", own.records++},
                  {"pg_id", 0},
                  {"process_group", {made.group, own.groups.at(made.group)["desc"]}},
                  {"collective_seq_id", transfer ? 0 : number},
                  {"p2p_seq_id", transfer ? number : 0},
                  {"op_id", own.records},
                  {"profiling_name", backend_ + ":" + made.operation},
                  {"time_created_ns", 1},
                  {"input_sizes", {made.sizes}},
                  {"input_dtypes", {made.type}},
                  {"output_sizes", {outputs}},
                  {"output_dtypes", {made.type}},
                  {"state", made.state},
                  {"retired", made.retired},
                  {"timeout_ms", 1000},
                  {"is_p2p", transfer}};
    if (!made.file.empty()) {
      entry["frames"] = {
          {{"name", "all_reduce"}, {"filename", "/lib/torch/distributed.py"}, {"line", 1}},
          {{"name", "main"}, {"filename", made.file}, {"line", made.line}}};
    }
    own.entries.push_back(entry);
  }

  std::string backend_;
  std::vector<Own> own_;
  bool says_members_ = true;
};

inline Ranks numbers(const std::vector<RankId>& ranks) {
  Ranks numbers;
  for (const RankId rank : ranks) numbers.push_back(rank.value);
  return numbers;
}

inline std::string text_of(const Explanation& explained) {
  std::string text;
  for (const std::string& line : reasons_of(explained)) text += line + "\n";
  return text;
}

/// "0>1 1>0": who waits for whom.
inline std::string cycle_of(const Explanation& explained) {
  std::string text;
  for (const CallWait& wait : explained.cycle) {
    text += (text.empty() ? "" : " ") + std::to_string(wait.waits.rank.value) + ">" +
            std::to_string(wait.waits_for.value);
  }
  return text;
}

}  // namespace dumps_test
}  // namespace pipewright::sim
