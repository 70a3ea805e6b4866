#include "tests/reference/order.hpp"

#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace pipewright::reference {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

int number_or_none(const std::string& digits) { return digits.empty() ? -1 : std::stoi(digits); }

Action parse_action(const std::string& text) {
  static const std::regex passes(
      R"(\s*(\d+)(SEND_F|RECV_F|SEND_B|RECV_B|F|I|W|B)(\d+)(?:@(\d+))?\s*)");
  static const std::regex others(R"(\s*(\d+)(UNSHARD|RESHARD|REDUCE_GRAD|WAIT_REDUCE_GRAD)\s*)");
  static const std::regex waits(R"(\s*(\d+)(WAIT_SEND_F|WAIT_SEND_B)(\d+)\s*)");
  static const std::regex update(R"(\s*(OPT|REDUCE_NORM|REDUCE_TIED)\s*)");
  static const std::string rest =
      R"((?::([^:()]*))?(?::([^:()]*))?(?::([^:()]*))?\)(?:@(\w+))?\s*)";
  static const std::regex collective(
      R"(\s*(ALL_REDUCE|ALL_GATHER|REDUCE_SCATTER|ALL_TO_ALL|BROADCAST|RING_SEND)\(([^:()]*))" +
      rest);
  static const std::regex transfer(R"(\s*(SEND|RECV)\([<>](\d+))" + rest);
  static const std::regex making(R"(\s*NEW_GROUP\(([^:()]*)\)\s*)");
  static const std::regex host(R"(\s*HOST_SYNC(?:@(\w+))?\s*)");
  std::smatch found;
  if (std::regex_match(text, found, collective))
    return {-1, found[1], -1, -1, found[2], found[3], found[4], found[5], found[6], -1};
  if (std::regex_match(text, found, transfer))
    return {-1, found[1], -1, -1, "", found[3], found[4], found[5], found[6], std::stoi(found[2])};
  if (std::regex_match(text, found, making)) return {-1, "NEW_GROUP", -1, -1, found[1]};
  if (std::regex_match(text, found, host))
    return {-1, "HOST_SYNC", -1, -1, "", "", "", "", found[1]};
  if (std::regex_match(text, found, passes)) {
    return {std::stoi(found[1]), found[2], std::stoi(found[3]), number_or_none(found[4])};
  }
  if (std::regex_match(text, found, waits))
    return {std::stoi(found[1]), found[2], std::stoi(found[3]), -1};
  if (std::regex_match(text, found, others)) return {std::stoi(found[1]), found[2], -1, -1};
  if (std::regex_match(text, found, update)) return {-1, found[1], -1, -1};
  throw std::invalid_argument("not an action: '" + text + "'");
}

std::string text_of(const Action& action) {
  return name(action) + (action.version < 0 ? "" : "@" + std::to_string(action.version));
}

}  // namespace

bool is_send(const Action& action) {
  return action.kind == "SEND_F" || action.kind == "SEND_B" || action.kind == "SEND";
}
bool is_recv(const Action& action) {
  return action.kind == "RECV_F" || action.kind == "RECV_B" || action.kind == "RECV";
}
bool is_named_transfer(const Action& action) {
  return action.kind == "SEND" || action.kind == "RECV";
}
bool is_group_collective(const Action& action) {
  static const std::set<std::string> kinds{"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER",
                                           "ALL_TO_ALL", "BROADCAST",  "RING_SEND"};
  return kinds.count(action.kind) > 0;
}
bool is_call(const Action& action) {
  return is_group_collective(action) || is_named_transfer(action) || action.kind == "NEW_GROUP" ||
         action.kind == "HOST_SYNC";
}
bool differ(const Action& a, const Action& b) {
  const auto other = [](const std::string& x, const std::string& y) {
    return !x.empty() && !y.empty() && x != y;
  };
  return (!is_named_transfer(a) && a.kind != b.kind) || a.group != b.group || a.data != b.data ||
         a.of_stage != b.of_stage || a.of_kind != b.of_kind || other(a.shape, b.shape) ||
         other(a.dtype, b.dtype);
}
bool is_transfer(const Cell& cell) {
  return cell.size() == 1 && (is_send(cell[0]) || is_recv(cell[0]));
}

bool is_wait(const Action& action) { return action.kind.rfind("WAIT_", 0) == 0; }

std::string awaited(const Action& wait) {
  return name(wait.stage, wait.kind.substr(5), wait.micro_batch);
}

bool is_batch(const Cell& cell) {
  return cell.size() > 1 && (is_send(cell[0]) || is_recv(cell[0]));
}

Order without_batches(const Order& order) {
  Order apart(order.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    for (const Cell& cell : order[rank]) {
      if (!is_batch(cell)) {
        apart[rank].push_back(cell);
        continue;
      }
      for (const Action& end : cell) apart[rank].push_back({end});
    }
  }
  return apart;
}

bool is_part(const Action& action) { return !action.part_of.empty(); }

bool is_pass(const Action& action) {
  return action.kind == "F" || action.kind == "I" || action.kind == "W" || action.kind == "B";
}

AxisRange axes_of_group(const Mesh& mesh, const std::string& group) {
  for (std::size_t first = 0; first < mesh.size(); ++first) {
    std::string rest = group;
    for (std::size_t end = first; end < mesh.size(); ++end) {
      if (rest == mesh[end].first) return {first, end + 1};
      const std::string begin = mesh[end].first + "+";
      if (rest.compare(0, begin.size(), begin) != 0) break;
      rest.erase(0, begin.size());
    }
  }
  return {};
}

bool is_axis(const Mesh& mesh, const std::string& group) {
  const AxisRange axes = axes_of_group(mesh, group);
  return axes.first < axes.end;
}

int devices_of_rank(const Mesh& mesh) {
  int devices = 1;
  for (const auto& [axis, count] : mesh) devices *= count;
  return devices;
}

bool is_asynchronous(const Order& order) {
  for (const Row& row : order) {
    for (const Cell& cell : row) {
      for (const Action& a : cell) {
        if (is_pass(a) && a.version >= 0) return true;
      }
    }
  }
  return false;
}

bool is_forward_only(const Order& order) {
  for (const Row& row : order) {
    for (const Cell& cell : row) {
      for (const Action& a : cell) {
        for (const char* backward : {"I", "B", "W", "SEND_B", "RECV_B"}) {
          if (a.kind == backward) return false;
        }
      }
    }
  }
  return true;
}

std::string name(int stage, const std::string& kind, int micro_batch) {
  return (stage < 0 ? "" : std::to_string(stage)) + kind +
         (micro_batch < 0 ? "" : std::to_string(micro_batch));
}

std::string name(const Action& action) {
  if (action.kind == "PART") return action.part_of + "." + action.data;
  if (is_part(action)) {
    Action alone = action;
    alone.part_of = "";
    return name(alone) + " of " + action.part_of;
  }
  if (!is_call(action)) return name(action.stage, action.kind, action.micro_batch);
  const std::string stream = action.stream.empty() ? "" : "@" + action.stream;
  if (action.kind == "HOST_SYNC") return action.kind + stream;
  std::string inside = action.group;
  if (is_named_transfer(action))
    inside = (action.kind == "SEND" ? ">" : "<") + std::to_string(action.peer);
  // What stands behind the last thing that is said is left out.
  std::string tail;
  for (const std::string& part : {action.dtype, action.shape, action.data}) {
    if (!part.empty() || !tail.empty()) tail = ":" + part + tail;
  }
  return action.kind + "(" + inside + tail + ")" + stream;
}

std::string text(const Cell& cell) {
  if (cell.empty()) return "";
  if (cell.size() == 1) return text_of(cell[0]);
  if (is_batch(cell)) {
    std::string ends;
    for (const Action& end : cell) ends += (ends.empty() ? "" : ";") + text_of(end);
    return "(" + ends + ")BATCH_P2P";
  }
  return "(" + text_of(cell.at(0)) + ";" + text_of(cell.at(1)) + ")OVERLAP_F_B";
}

Cell parse_cell(const std::string& cell) {
  static const std::regex pair(R"(\s*\(([^;]*);([^;]*)\)\s*OVERLAP_F_B\s*)");
  static const std::regex batch(R"(\s*\((.*)\)\s*BATCH_P2P\s*)");
  std::smatch found;
  if (std::regex_match(cell, found, batch)) {
    Cell ends;
    std::istringstream inside(found[1]);
    for (std::string end; std::getline(inside, end, ';');) {
      ends.push_back(parse_action(end));
      if (!is_send(ends.back()) && !is_recv(ends.back()))
        throw std::invalid_argument("no transfer end: '" + end + "'");
    }
    return ends;
  }
  if (std::regex_match(cell, found, pair)) return {parse_action(found[1]), parse_action(found[2])};
  return {parse_action(cell)};
}

Order parse_order(const std::string& csv) {
  Order order;
  int line_number = 0;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line); ++line_number) {
    if (line.rfind('#', 0) == 0) continue;
    Row row;
    bool any_action = false;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) {
      try {
        row.push_back(trimmed(cell).empty() ? Cell{} : parse_cell(trimmed(cell)));
      } catch (const std::invalid_argument& error) {
        throw std::invalid_argument("row " + std::to_string(line_number) + ", cell " +
                                    std::to_string(row.size()) + ": " + error.what());
      }
      any_action = any_action || !row.back().empty();
    }
    if (any_action) order.push_back(row);
  }
  return order;
}

namespace {

std::vector<Action> parse_parts(const std::string& text) {
  static const std::regex weighted(R"(([^*]+)(?:\*(\d+))?)");
  std::vector<Action> parts;
  std::istringstream words(text);
  std::smatch found;
  std::int64_t weights = 0;
  for (std::string word; words >> word;) {
    if (!std::regex_match(word, found, weighted)) throw std::invalid_argument("no part: " + word);
    const bool is_call = word.find('(') != word.npos;
    const std::string first = found[1];
    const bool beside = is_call && first[0] == '&';
    parts.push_back(is_call ? parse_action(first.substr(beside ? 1 : 0))
                            : Action{-1, "PART", -1, -1, "", found[1]});
    parts.back().weight = found[2].length() > 0 ? std::stoll(found[2]) : is_call ? 0 : 1;
    parts.back().beside = beside;
    parts.back().before = weights;
    if (!is_call) weights += parts.back().weight;
  }
  for (Action& part : parts) part.of_all = weights;
  return parts;
}

}  // namespace

Heading parse_heading(const std::string& csv) {
  static const std::regex group(R"(# group ([^:]*):(.*))"), parts(R"(# parts (\d+[FIWB]):(.*))"),
      mesh(R"(# (mesh|devices) (.*))"), axis(R"((\w+)=(\d+))"),
      sharding(R"(# sharding(?: zero=([123]))?(?: groups=(\d+))?)");
  Heading heading;
  std::istringstream lines(csv);
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, found, group)) {
      std::istringstream ranks(found[2]);
      std::vector<int>& of = heading.groups[found[1]];
      for (int rank = 0; ranks >> rank;) of.push_back(rank);
    } else if (std::regex_match(line, found, parts)) {
      heading.parts[found[1]] = parse_parts(found[2]);
    } else if (std::regex_match(line, found, sharding)) {
      if (found[1].matched) heading.zero = std::stoi(found[1]);
      if (found[2].matched) heading.replica_groups = std::stoi(found[2]);
    } else if (std::regex_match(line, found, mesh)) {
      Mesh& of = found[1] == "mesh" ? heading.mesh : heading.devices;
      std::istringstream axes(found[2]);
      for (std::string word; axes >> word;) {
        if (!std::regex_match(word, found, axis)) throw std::invalid_argument("no axis: " + word);
        of.emplace_back(found[1], std::stoi(found[2]));
      }
    }
  }
  return heading;
}

std::string to_csv(const Order& order, const Heading& heading) {
  std::string csv;
  for (const auto& [group, ranks] : heading.groups) {
    csv += "# group " + group + ":";
    for (const int rank : ranks) csv += " " + std::to_string(rank);
    csv += "\n";
  }
  for (const auto& [of, parts] : heading.parts) {
    csv += "# parts " + of + ":";
    for (const Action& part : parts) {
      csv += std::string(part.beside ? " &" : " ") + (part.kind == "PART" ? part.data : name(part));
      if (part.weight > 0) csv += "*" + std::to_string(part.weight);
    }
    csv += "\n";
  }
  for (const bool ranks_are_devices : {false, true}) {
    const Mesh& axes = ranks_are_devices ? heading.devices : heading.mesh;
    if (axes.empty()) continue;
    csv += ranks_are_devices ? "# devices" : "# mesh";
    for (const auto& [axis, devices] : axes) csv += " " + axis + "=" + std::to_string(devices);
    csv += "\n";
  }
  if (heading.zero > 0 || heading.replica_groups > 1) {
    csv += "# sharding";
    if (heading.zero > 0) csv += " zero=" + std::to_string(heading.zero);
    if (heading.replica_groups > 1) csv += " groups=" + std::to_string(heading.replica_groups);
    csv += "\n";
  }
  for (const Row& row : order) {
    for (std::size_t i = 0; i < row.size(); ++i) csv += (i == 0 ? "" : ",") + text(row[i]);
    csv += "\n";
  }
  return csv;
}

}  // namespace pipewright::reference
