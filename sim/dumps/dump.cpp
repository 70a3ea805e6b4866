// Keys and meanings as in torch/csrc/distributed/c10d/FlightRecorderDetail.hpp of PyTorch 2.13
// (format 2.10). Keys that are not needed here are not looked at.
#include "sim/dumps/dump.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/pickle.hpp"
#include "core/base/trimmed.hpp"
#include "core/order/call.hpp"
#include "sim/dumps/batches.hpp"

namespace pipewright::sim {
namespace {

constexpr std::int64_t kMostRecords = std::int64_t{1} << 53;
constexpr std::size_t kMostTensors = 65536;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The number that `text` ends with is that of the rank; nullopt: too large, or none.
std::optional<std::int64_t> number_at_end(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc() || value >= kMostGroupRanks) return std::nullopt;
  return value;
}

RankId rank_in_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  std::string_view stem = name;
  const std::size_t dot = stem.rfind('.');
  if (dot != stem.npos && !number_at_end(stem)) stem = stem.substr(0, dot);
  if (!number_at_end(stem)) {
    // "rank3_dump": the only number there is.
    const std::size_t last = stem.find_last_of("0123456789");
    const std::string_view upto = stem.substr(0, last == stem.npos ? 0 : last + 1);
    const std::size_t begin = upto.find_first_of("0123456789");
    const bool alone = begin != upto.npos && std::ranges::all_of(upto.substr(begin), is_digit);
    stem = alone ? upto : "";
  }
  const auto rank = number_at_end(stem);
  if (!rank)
    throw InputError(
        file, "",
        "whose dump is it? A dump does not say its rank, so the file's name has to end "
        "with it, as in nccl_trace_rank_3");
  return RankId(*rank);
}

Json document_of(std::string_view bytes, const std::string& file) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == bytes.npos)
    throw InputError(file, "", "is empty; expected a Flight Recorder dump, a pickle or JSON");
  if (bytes[first] == '{') return parse_json(bytes, file);
  if (static_cast<unsigned char>(bytes.front()) == 0x80) return parse_pickle(bytes, file);
  throw InputError(file, "",
                   "is neither a pickle nor JSON; expected a Flight Recorder dump of PyTorch");
}

/// "[0, 1]", a text; or a list. gloo leaves it empty.
std::vector<RankId> read_ranks(const JsonCursor& value) {
  Json parsed;
  if (value.value().is_string()) {
    parsed = Json::parse(value.string(), nullptr, false);
    if (!parsed.is_array()) value.fail("a list of ranks, such as \"[0, 1]\"");
  }
  const JsonCursor list(value.value().is_string() ? parsed : value.value(), value.file(),
                        value.pointer());
  std::vector<RankId> ranks;
  for (const JsonCursor& rank : list.elements())
    ranks.emplace_back(rank.integer(0, kMostGroupRanks - 1));
  std::vector<RankId> sorted = ranks;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    value.fail("the ranks of a group, each once");
  return ranks;
}

/// gloo has one group there, without a name.
void read_groups(const JsonCursor& value, Dump& dump) {
  for (const auto& [key, group] : value.members()) {
    RecordedGroup read{.name = group.at("name").string(),
                       .description = group.at("desc").string(),
                       .ranks = read_ranks(group.at("ranks"))};
    if (read.name.empty()) {
      dump.others = std::move(read.ranks);
    } else {
      dump.groups.push_back(std::move(read));
    }
  }
}

/// A name of PyTorch's ("BFloat16") as that of a call of an order.
std::string type_named(std::string word) {
  constexpr std::pair<std::string_view, std::string_view> kOwn[] = {
      {"Float", "float32"}, {"Double", "float64"}, {"Half", "float16"}, {"Byte", "uint8"},
      {"Char", "int8"},     {"Short", "int16"},    {"Int", "int32"},    {"Long", "int64"}};
  const auto own =
      std::ranges::find(kOwn, word, &std::pair<std::string_view, std::string_view>::first);
  if (own != std::end(kOwn)) return std::string(own->second);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return as_call_name(word);
}

Tensors read_tensors(const JsonCursor& entry, const char* sizes, const char* types) {
  Tensors tensors;
  for (const JsonCursor& tensor : entry.at(sizes).elements()) {
    auto& extents = tensors.sizes.emplace_back();
    for (const JsonCursor& extent : tensor.elements())
      extents.push_back(extent.integer(0, kMostBytes));
    if (tensors.sizes.size() > kMostTensors) tensor.fail("at most 65536 tensors");
  }
  if (const auto named = entry.find(types)) {
    for (const JsonCursor& type : named->elements())
      tensors.types.push_back(type_named(type.string()));
  }
  return tensors;
}

/// PyTorch's own files, Python's, and what is in none.
bool is_library(const std::string& file) {
  const bool python = file.find("/lib/python") != file.npos && file.find("-packages/") == file.npos;
  return file.empty() || file.front() == '<' || python || file.find("/torch/") != file.npos;
}

/// From the innermost frame on, those of the user's program; the place is the first two.
void read_frames(const JsonCursor& entry, RecordedCall& call) {
  const auto frames = entry.find("frames");
  if (!frames) return;
  int shown = 0;
  for (const JsonCursor& frame : frames->elements()) {
    const std::string file = frame.at("filename").string();
    if (is_library(file)) continue;
    const std::string here = (call.stack.empty() ? "" : " from ") +
                             file.substr(file.rfind('/') + 1) + ":" +
                             std::to_string(frame.at("line").integer(0, kMostRecords)) + " (" +
                             frame.at("name").string() + ")";
    call.stack += here;
    if (shown++ < 2) call.place += here;
  }
}

CallState read_state(const JsonCursor& value) {
  return read_choice<CallState>(value, {{"scheduled", CallState::Scheduled},
                                        {"started", CallState::Started},
                                        {"completed", CallState::Completed}});
}

/// "gloo:all_reduce", "nccl:send 1->2", "nccl:recv 2<-1".
void read_operation(const JsonCursor& value, RecordedCall& call) {
  const std::string name = value.string();
  const std::size_t colon = name.find(':');
  const std::size_t space = std::min(name.find(' '), name.size());
  if (colon == name.npos || colon == 0 || colon + 1 >= space)
    value.fail("a back end and an operation, such as \"nccl:all_reduce\"");
  call.backend = name.substr(0, colon);
  call.operation = name.substr(colon + 1, space - colon - 1);
  call.is_transfer = call.operation == "send" || call.operation == "recv";
  if (!call.is_transfer) return;
  const bool sends = call.operation == "send";
  const std::string_view peers = trimmed(std::string_view(name).substr(space));
  const std::size_t arrow = peers.find(sends ? "->" : "<-");
  const auto own = number_at_end(peers.substr(0, std::min(arrow, peers.size())));
  const auto other = number_at_end(peers.substr(std::min(arrow, peers.size())));
  if (arrow == peers.npos || !own || !other)
    value.fail("the two ends of a transfer, as in \"nccl:send 1->2\" and \"nccl:recv 2<-1\"");
  call.source = sends ? *own : *other;
  call.destination = sends ? *other : *own;
}

std::size_t group_of(const JsonCursor& value, std::vector<RecordedGroup>& groups) {
  const std::vector<JsonCursor> words = value.elements();
  if (words.size() != 2) value.fail("a group's name and its description");
  const std::string name = words[0].string();
  const auto known = std::ranges::find(groups, name, &RecordedGroup::name);
  const auto number = static_cast<std::size_t>(known - groups.begin());
  if (number == groups.size()) groups.push_back({.name = name, .description = words[1].string()});
  return number;
}

/// The rank's own end of a transfer is its own, as far as the dump says who is in the group.
void require_own_end(const JsonCursor& name, const RecordedCall& call, const Dump& dump) {
  const std::vector<RankId>& ranks = dump.groups[call.group].ranks;
  if (ranks.empty()) name.fail("a transfer in a group whose ranks stand in pg_config");
  const auto members = static_cast<std::int64_t>(ranks.size());
  const std::int64_t own = call.operation == "send" ? call.source : call.destination;
  if (call.source >= members || call.destination >= members)
    name.fail("a transfer between two of the " + std::to_string(members) + " members of its group");
  if (ranks[static_cast<std::size_t>(own)] != dump.rank)
    name.fail("a transfer of rank " + std::to_string(dump.rank.value) +
              ", whose dump it is by its name");
}

/// gloo never says "completed"; what has ended, it has retired.
CallState state_of(const JsonCursor& entry, const RecordedCall& call) {
  const CallState state = read_state(entry.at("state"));
  const auto retired = entry.find("retired");
  const bool has_ended = call.backend == "gloo" && retired && retired->boolean();
  return has_ended ? CallState::Completed : state;
}

RecordedCall read_call(const JsonCursor& entry, Dump& dump) {
  RecordedCall call;
  call.record = entry.at("record_id").integer(0, kMostRecords);
  call.group = group_of(entry.at("process_group"), dump.groups);
  read_operation(entry.at("profiling_name"), call);
  const auto is_p2p = entry.find("is_p2p");
  call.counts_as_transfer = is_p2p ? is_p2p->boolean() : call.is_transfer;
  call.number = entry.at(call.counts_as_transfer ? "p2p_seq_id" : "collective_seq_id")
                    .integer(0, kMostRecords);
  call.inputs = read_tensors(entry, "input_sizes", "input_dtypes");
  call.outputs = read_tensors(entry, "output_sizes", "output_dtypes");
  call.state = state_of(entry, call);
  read_frames(entry, call);
  if (call.is_transfer) require_own_end(entry.at("profiling_name"), call, dump);
  return call;
}

void require_version(const JsonCursor& value) {
  const std::string version = value.string();
  if (!version.starts_with("2."))
    value.fail("a version 2 of the Flight Recorder's format (PyTorch 2.4 and later)");
}

}  // namespace

std::string_view to_string(CallState state) {
  switch (state) {
    case CallState::Scheduled:
      return "scheduled";
    case CallState::Started:
      return "started";
    case CallState::Completed:
      return "completed";
  }
  return "scheduled";
}

Dump read_dump(std::string_view bytes, const std::string& file, std::optional<RankId> rank) {
  const Json document = document_of(bytes, file);
  const JsonCursor root(document, file);
  if (!document.is_object() || !document.contains("version") || !document.contains("pg_config"))
    throw InputError(file, "", "is no Flight Recorder dump: it has no version and pg_config");
  require_version(root.at("version"));
  Dump dump;
  dump.file = file;
  dump.rank = rank ? *rank : rank_in_name(file);
  dump.version = root.at("version").string();
  read_groups(root.at("pg_config"), dump);
  const auto entries = root.find("entries");  // JSON leaves an empty list out
  for (const JsonCursor& entry : entries ? entries->elements() : std::vector<JsonCursor>()) {
    dump.calls.push_back(read_call(entry, dump));
    const std::size_t count = dump.calls.size();
    if (count > 1 && dump.calls[count - 2].record >= dump.calls.back().record)
      entry.at("record_id").fail("records in ascending order");
    dump.whole &= dump.calls.back().record + 1 == static_cast<std::int64_t>(count);
  }
  join_batches(dump.calls);
  return dump;
}

}  // namespace pipewright::sim
