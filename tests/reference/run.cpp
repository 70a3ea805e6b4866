#include "tests/reference/run.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include "tests/reference/collectives.hpp"

namespace pipewright::reference {

Run::Run(const Program& program, const Policy& policy, const Costs& costs)
    : program_(program), policy_(policy), costs_(costs), same_credit_(program.instructions.size()) {
  const std::size_t n = program.instructions.size();
  happened_ = {std::vector<std::optional<std::int64_t>>(n),
               std::vector<std::optional<std::int64_t>>(n),
               std::vector<std::optional<std::int64_t>>(n), std::vector<bool>(n),
               std::vector<std::optional<std::int64_t>>(n)};
  std::map<std::tuple<int, int, std::string>, std::vector<int>> sends;
  const auto key = [&](std::size_t id) {
    const Instruction& send = program.instructions[id];
    return std::tuple(send.rank, send.peer, send.cell[0].kind);
  };
  for (std::size_t id = 0; id < n; ++id) {
    if (program.instructions[id].is_send()) sends[key(id)].push_back(static_cast<int>(id));
  }
  for (std::size_t id = 0; id < n; ++id) {
    if (program.instructions[id].is_send()) same_credit_[id] = sends[key(id)];
  }
  passed_.assign(n, true);
  hosts_.resize(program.lists.size());
  if (policy.first_use && policy.issue == Issue::Stream) walk_hosts();
}

// --- Section 2.2 ---

/// Of the pipeline's own.
bool Run::is_posted_at_start(int id) const {
  const Instruction& end = program_.instructions[id];
  return end.is_recv() && !is_named_transfer(end.cell[0]);
}

/// RECVs that are issued at the start, then the others.
std::vector<int> Run::issue_order(int rank, bool with_members) const {
  std::vector<int> ends;
  for (const int id : program_.lists[rank]) {
    const Instruction& instruction = program_.instructions[id];
    if (instruction.is_transfer() || (with_members && instruction.is_member())) ends.push_back(id);
  }
  if (policy_.post == Post::AtStart && policy_.issue == Issue::Stream) {
    std::stable_partition(ends.begin(), ends.end(),
                          [this](int id) { return is_posted_at_start(id); });
  }
  return ends;
}

std::optional<Run::Stand> Run::held(int rank) const {
  if (policy_.in_flight == 0 || policy_.issue != Issue::Stream) return std::nullopt;
  const std::vector<int> ends = issue_order(rank);
  for (std::size_t k = 0; k < ends.size(); ++k) {
    if (!reached(ends[k]) || !passed(ends[k])) return std::nullopt;
    if (k < static_cast<std::size_t>(policy_.in_flight)) continue;
    const int older = ends[k - static_cast<std::size_t>(policy_.in_flight)];
    if (!ended(older)) return Stand{ends[k], older};
  }
  return std::nullopt;
}

void Run::to_the_end() {
  while (true) {
    bool something = true;
    while (something) {
      something = false;
      for (const Lane& lane : program_.lanes) something = look_at(lane) || something;
      // Credit first: only what finds none at the end of this instant meets its RECV without it.
      if (!something) something = rendezvous_without_credit();
    }
    const std::optional<std::int64_t> next = next_instant();
    if (!next) return;
    now_ = *next;
  }
}

std::optional<std::int64_t> Run::next_instant() const {
  std::optional<std::int64_t> next;
  for (const auto* times : {&happened_.end, &happened_.arrival}) {
    for (const std::optional<std::int64_t>& time : *times) {
      if (time && *time > now_ && (!next || *time < *next)) next = time;
    }
  }
  return next;
}

// --- What is the case now ---

bool Run::ended(int id) const { return happened_.end[id] && *happened_.end[id] <= now_; }

bool Run::issued(int id) const {
  if (!reached(id) || !passed(id)) return false;
  const std::optional<Stand> stand = held(program_.instructions[id].rank);
  if (!stand) return true;
  // A member of a collective takes no place in flight, but stands behind what stands before it.
  const std::vector<int> ends = issue_order(program_.instructions[id].rank, true);
  return std::find(ends.begin(), ends.end(), id) < std::find(ends.begin(), ends.end(), stand->at);
}

/// The compute lane has come to the transfer end.
bool Run::reached(int id) const {
  if (policy_.issue == Issue::Inline)
    return true;  // an instruction of the compute lane like any other
  const std::vector<int>& by = program_.instructions[id].issued_by;
  return std::all_of(by.begin(), by.end(), [this](int other) { return ended(other); });
}

int Run::first_unfinished(const Lane& lane) const {
  for (const int id : lane.instructions) {
    if (!ended(id)) return id;
  }
  return kNobody;
}

bool Run::at_head(int id) const {
  const Instruction& end = program_.instructions[id];
  const int first = first_unfinished(program_.lanes[end.lane]);
  if (first == id) return true;
  return !ended(id) && std::find(end.batch.begin(), end.batch.end(), first) != end.batch.end();
}

bool Run::has_inputs(int id) const {
  const std::vector<int>& inputs = program_.instructions[id].inputs;
  return std::all_of(inputs.begin(), inputs.end(), [this](int input) { return ended(input); });
}

bool Run::ready(int id) const {
  const Instruction& end = program_.instructions[id];
  return issued(id) && at_head(id) && connected(id) && has_inputs(id) &&
         std::all_of(end.run_before.begin(), end.run_before.end(),
                     [this](int other) { return ended(other); });
}

// --- What happens now ---

bool Run::look_at(const Lane& lane) {
  const int first = first_unfinished(lane);
  if (first == kNobody) return false;
  bool something = look_at(first);
  for (const int id : program_.instructions[first].batch) {
    const Instruction& end = program_.instructions[id];
    if (id != first && &program_.lanes[end.lane] == &lane && !ended(id))
      something = look_at(id) || something;
  }
  return something;
}

bool Run::look_at(int id) {
  if (happened_.start[id]) return false;
  if (program_.instructions[id].is_member()) return collective(id);
  if (!program_.instructions[id].is_transfer()) return compute(id);
  if (!ready(id)) return false;
  return program_.instructions[id].is_send() ? send(id) : recv(id);
}

bool Run::compute(int id) {
  const Instruction& computation = program_.instructions[id];
  if (!passed(id) || held(computation.rank)) return false;
  for (const auto* needed : {&computation.inputs, &computation.run_before}) {
    for (const int other : *needed) {
      if (!ended(other)) return false;
    }
  }
  happened_.start[id] = now_;
  happened_.end[id] = now_ + computation_time(id);
  return true;
}

bool Run::of_one_call(int id, int other) const {
  const Action& a = program_.instructions[id].cell[0];
  return !is_call(a) || !differ(a, program_.instructions[other].cell[0]);
}

bool Run::collective(int id) {
  const std::vector<int>& others = program_.instructions[id].others;
  if (program_.instructions[id].lacks_member || !ready(id) ||
      !std::all_of(others.begin(), others.end(), [this](int o) { return ready(o); }))
    return false;
  for (const int other : others) {
    if (!of_one_call(id, other)) return false;
  }
  std::vector<int> members = others;
  members.push_back(id);
  for (const int member : members) {
    happened_.start[member] = now_;
    happened_.end[member] = now_ + collective_time(id);
  }
  return true;
}

bool Run::send(int id) {
  const Instruction& end = program_.instructions[id];
  if (gets_credit(id)) {
    // Also if its RECV is for something else: that is found out when the message is to be received.
    happened_.start[id] = happened_.end[id] = now_;
    happened_.arrival[id] = now_ + transfer_time(id);
    happened_.used_credit[id] = true;
    return true;
  }
  if (end.partner == kNobody || end.mismatch || !ready(end.partner)) return false;
  // A meeting for want of credit waits for the end of this instant, unless it takes no time: then
  // it makes no difference to this pair, and what it sets free may give credit to others.
  if (may_be_eager(id) && transfer_time(id) > 0) return false;
  rendezvous(id);
  return true;
}

bool Run::recv(int id) {
  bool something = false;
  if (!happened_.ready[id]) {
    happened_.ready[id] = now_;
    something = true;
  }
  const Instruction& end = program_.instructions[id];
  if (end.partner == kNobody || end.mismatch) return something;
  const std::optional<std::int64_t> arrival = happened_.arrival[end.partner];
  if (!arrival || *arrival > now_) return something;
  happened_.start[id] = happened_.ready[id];
  happened_.end[id] = now_;
  return true;
}

bool Run::rendezvous_without_credit() {
  // By lane; within a rank and a kind this is program order.
  for (const Lane& lane : program_.lanes) {
    for (const int send : lane.instructions) {
      const Instruction& end = program_.instructions[send];
      if (!end.is_send() || ended(send) || happened_.start[send] || !at_head(send)) continue;
      if (end.partner == kNobody || end.mismatch || !ready(send) || !ready(end.partner)) continue;
      rendezvous(send);
      return true;
    }
  }
  return false;
}

void Run::rendezvous(int send) {
  for (const int id : {send, program_.instructions[send].partner}) {
    happened_.start[id] = now_;
    happened_.end[id] = now_ + transfer_time(send);
  }
}

// --- Credit, section 4.3 ---

const Protocol& Run::protocol_of(int send) const {
  return program_.instructions[send].cell[0].kind == "SEND_B" ? policy_.backward : policy_.forward;
}

const std::vector<int>& Run::same_credit(int send) const { return same_credit_[send]; }

bool Run::is_first_message(int send) const {
  const Instruction& end = program_.instructions[send];
  for (const int id : program_.lists[end.rank]) {
    if (program_.instructions[id].is_send() && program_.instructions[id].peer == end.peer)
      return id == send;
  }
  return false;
}

bool Run::may_be_eager(int send) const {
  const Protocol& protocol = protocol_of(send);
  if (protocol.credit == Protocol::Credit::None || policy_.registered) return false;
  if (policy_.first_use && policy_.issue != Issue::Stream && is_first_message(send)) return false;
  if (protocol.credit == Protocol::Credit::Unlimited) return true;
  const std::int64_t wanted = protocol.credit == Protocol::Credit::Bytes ? bytes_of(send) : 1;
  return wanted <= protocol.amount;
}

bool Run::gets_credit(int send) const {
  if (!may_be_eager(send)) return false;
  const Protocol& protocol = protocol_of(send);
  if (protocol.credit == Protocol::Credit::Unlimited) return true;
  const bool in_bytes = protocol.credit == Protocol::Credit::Bytes;
  std::int64_t in_use = 0;
  bool before = true;
  for (const int other : same_credit(send)) {
    if (other == send) before = false;
    // Credit is taken in program order: a later send does not overtake one that is not ready or
    // does not fit.
    if (before && may_be_eager(other) && !happened_.start[other]) return false;
    if (!happened_.used_credit[other]) continue;
    const int recv = program_.instructions[other].partner;
    if (recv == kNobody || !ended(recv)) in_use += in_bytes ? bytes_of(other) : 1;
  }
  return in_use + (in_bytes ? bytes_of(send) : 1) <= protocol.amount;
}

// --- Durations, section 5 ---

namespace {

/// Of its shape and type, where it says both.
std::int64_t bytes_of_call(const Action& call) {
  static const std::map<std::string, std::int64_t> sizes{
      {"float64", 8},     {"float32", 4},     {"float16", 2},  {"bfloat16", 2}, {"int64", 8},
      {"float8_e4m3", 1}, {"float8_e5m2", 1}, {"int32", 4},    {"int16", 2},    {"int8", 1},
      {"uint8", 1},       {"bool", 1},        {"complex64", 8}};
  const auto size = sizes.find(call.dtype);
  if (call.shape.empty() || size == sizes.end()) return 0;
  std::int64_t bytes = size->second;
  std::istringstream extents(call.shape);
  for (std::string extent; std::getline(extents, extent, 'x');) bytes *= std::stoll(extent);
  return bytes;
}

}  // namespace

std::int64_t Run::bytes_of(int send) const {
  const Action& end = program_.instructions[send].cell[0];
  if (is_named_transfer(end)) return bytes_of_call(end);
  for (const std::string& key : {name(end), end.kind}) {
    const auto found = costs_.bytes.find(key);
    if (found != costs_.bytes.end()) return found->second;
  }
  return 0;
}

std::int64_t Run::transfer_time(int send) const {
  const auto found = costs_.latency_of.find(name(program_.instructions[send].cell[0]));
  const std::int64_t latency = found == costs_.latency_of.end() ? costs_.latency : found->second;
  if (!costs_.bytes_per_second) return latency;
  const Wide nanoseconds = static_cast<Wide>(bytes_of(send)) * 1'000'000'000;
  const Wide rate = *costs_.bytes_per_second;
  return latency + static_cast<std::int64_t>((nanoseconds + rate - 1) / rate);
}

namespace {

std::optional<std::int64_t> given_cost(const Costs& costs, const std::string& kind, int stage) {
  const auto by_stage = costs.kind_and_stage.find(kind);
  if (by_stage != costs.kind_and_stage.end() && by_stage->second.count(stage))
    return by_stage->second.at(stage);
  const auto found = costs.kind.find(kind);
  if (found != costs.kind.end()) return found->second;
  return std::nullopt;
}

std::optional<std::int64_t> own_cost(const Costs& costs, const std::string& action) {
  const auto found = costs.actions.find(action);
  return found == costs.actions.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t cost_of(const Costs& costs, const std::string& kind, int stage) {
  if (const auto given = given_cost(costs, kind, stage)) return *given;
  return kind == "B" ? cost_of(costs, "I", stage) + cost_of(costs, "W", stage) : 0;
}

}  // namespace

/// Rounded up.
std::int64_t Run::ring_time(std::int64_t steps, std::int64_t bytes, std::int64_t parts) const {
  const std::int64_t latency = steps * costs_.latency;
  if (!costs_.bytes_per_second) return latency;
  const Wide work = static_cast<Wide>(bytes) * 1'000'000'000;
  const Wide rate = static_cast<Wide>(parts) * *costs_.bytes_per_second;
  return latency + static_cast<std::int64_t>((work + rate - 1) / rate);
}

/// A REDUCE_NORM is priced by the first rank of each block (3.5).
bool Run::counts(int member) const {
  const Instruction& own = program_.instructions[member];
  return own.cell[0].kind != "REDUCE_NORM" || own.rank % program_.block == 0;
}

/// Of a collective whose costs are terms.
std::int64_t Run::price(int member, const std::string& kind, std::int64_t bytes) const {
  const Instruction& own = program_.instructions[member];
  std::vector<int> devices;
  for (int d = 0; d < own.devices && counts(member); ++d)
    devices.push_back(own.rank * program_.devices_of_rank + d * own.stride);
  for (const int other : own.others) {
    if (counts(other))
      devices.push_back(program_.instructions[other].rank * program_.devices_of_rank);
  }
  return collective_price(*costs_.collectives, kind, devices, bytes);
}

/// Section 5, of a call.
std::int64_t Run::call_time(int member) const {
  std::vector<int> members = program_.instructions[member].others;
  members.push_back(member);
  const Action& a = program_.instructions[member].cell[0];
  if (a.kind == "NEW_GROUP") return 0;
  std::int64_t bytes = 0, weight = 0;
  for (const int each : members) {
    const Action& own = program_.instructions[each].cell[0];
    bytes = std::max(bytes, bytes_of_call(own));
    if (!own.part_of.empty()) weight = std::max(weight, own.weight);
  }
  if (weight > 0) return cost_of(costs_, a.of_kind, a.of_stage) * weight / a.of_all;
  if (costs_.collectives) return price(member, a.kind, bytes);
  const auto n = static_cast<std::int64_t>(members.size()) * program_.instructions[member].devices;
  if (a.kind == "BROADCAST") return ring_time(n - 1, bytes, 1);
  if (a.kind == "RING_SEND") return ring_time(1, bytes, 1);
  const std::int64_t rounds = a.kind == "ALL_REDUCE" ? 2 : 1;
  return ring_time(rounds * (n - 1), rounds * (n - 1) * bytes, n);
}

std::int64_t Run::collective_time(int member) const {
  const Action& a = program_.instructions[member].cell[0];
  if (is_call(a)) return call_time(member);
  const std::int64_t given = cost_of(costs_, a.kind, a.stage);
  const bool is_norm = a.kind == "REDUCE_NORM", is_tied = a.kind == "REDUCE_TIED";
  const auto found = costs_.parameter_bytes.find(a.stage);
  if (is_tied   ? costs_.tied_bytes == 0
      : is_norm ? costs_.parameter_bytes.empty()
                : found == costs_.parameter_bytes.end())
    return given;
  const std::int64_t bytes = is_tied ? costs_.tied_bytes : is_norm ? 8 : found->second;
  std::int64_t n = counts(member) ? 1 : 0;
  for (const int other : program_.instructions[member].others) n += counts(other) ? 1 : 0;
  const bool sharded = a.stage >= 0 && a.stage < static_cast<int>(program_.sharded.size()) &&
                       program_.sharded[a.stage];
  if (sharded && program_.groups > 1 && a.kind == "REDUCE_GRAD")
    return given + grouped_time(member, bytes);
  if (costs_.collectives) {
    const bool gathers = a.kind == "UNSHARD";
    return given + price(member,
                         gathers   ? "ALL_GATHER"
                         : sharded ? "REDUCE_SCATTER"
                                   : "ALL_REDUCE",
                         bytes);
  }
  const std::int64_t steps = sharded ? n - 1 : 2 * (n - 1);
  return given + ring_time(steps, steps * bytes, n);
}

/// Section 5: a REDUCE_GRAD of replicas in groups.
std::int64_t Run::grouped_time(int member, std::int64_t bytes) const {
  std::vector<int> ranks{program_.instructions[member].rank};
  for (const int other : program_.instructions[member].others)
    ranks.push_back(program_.instructions[other].rank);
  std::sort(ranks.begin(), ranks.end());
  const auto time_of = [&](const std::vector<int>& of, const std::string& kind, std::int64_t b) {
    const auto n = static_cast<std::int64_t>(of.size());
    if (n == 1) return std::int64_t{0};
    if (costs_.collectives) {
      std::vector<int> devices;
      for (const int rank : of) devices.push_back(rank * program_.devices_of_rank);
      return collective_price(*costs_.collectives, kind, devices, b);
    }
    const std::int64_t steps = kind == "ALL_REDUCE" ? 2 * (n - 1) : n - 1;
    return ring_time(steps, steps * b, n);
  };
  const std::size_t each =
      std::max<std::size_t>(1, ranks.size() / static_cast<std::size_t>(program_.groups));
  std::int64_t inside = 0, across = 0;
  for (std::size_t first = 0; first < ranks.size(); first += each) {
    const std::size_t end = std::min(ranks.size(), first + each);
    inside = std::max(inside, time_of({ranks.begin() + static_cast<std::ptrdiff_t>(first),
                                       ranks.begin() + static_cast<std::ptrdiff_t>(end)},
                                      "REDUCE_SCATTER", bytes));
  }
  for (std::size_t part = 0; part < each; ++part) {
    std::vector<int> of;
    for (std::size_t k = part; k < ranks.size(); k += each) of.push_back(ranks[k]);
    const auto parts = static_cast<std::int64_t>(each);
    across = std::max(across, time_of(of, "ALL_REDUCE", (bytes + parts - 1) / parts));
  }
  return inside + across;
}

std::int64_t Run::computation_time(int id) const {
  const Cell& cell = program_.instructions[id].cell;
  const std::string& kind = cell[0].kind;
  if (program_.instructions[id].has_parts) return 0;
  if (kind == "PART") {
    const std::int64_t whole = own_cost(costs_, cell[0].part_of)
                                   .value_or(cost_of(costs_, cell[0].of_kind, cell[0].of_stage));
    const std::int64_t up_to = cell[0].before + cell[0].weight;
    return whole * up_to / cell[0].of_all - whole * cell[0].before / cell[0].of_all;
  }
  if (kind == "REDUCE_GRAD" || kind == "UNSHARD" || kind == "REDUCE_NORM" || kind == "REDUCE_TIED")
    return 0;  // alone
  const auto alone = [&](const Action& a) {
    return own_cost(costs_, name(a)).value_or(cost_of(costs_, a.kind, a.stage));
  };
  if (cell.size() == 1) return alone(cell[0]);
  if (const auto pair = own_cost(costs_, name(cell[0]) + " " + name(cell[1]))) return *pair;
  if (const auto pair = given_cost(costs_, "FB", cell[0].stage)) return *pair;
  return alone(cell[0]) + alone(cell[1]);
}

}  // namespace pipewright::reference
