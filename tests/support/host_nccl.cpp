#include "tests/support/host_nccl.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "exec/devices/cuda/bfloat16.hpp"
#include "tests/support/host_cuda.hpp"
#include "tests/support/host_streams.hpp"

namespace pipewright::tests {
namespace {

struct Sent {
  std::shared_ptr<void> copy;
  std::size_t bytes = 0;
  std::shared_ptr<void> ready;  // after the copying
};

using SumKind = HostNcclCall::Kind;
using Bytes = std::vector<std::byte>;

/// What all members of a communicator take part in: what each has brought.
struct Sum {
  SumKind kind = SumKind::AllReduce;
  int type = PIPEWRIGHT_NCCL_FLOAT32;
  std::map<int, Sent> brought;  // by member
};

/// What the members of a communicator share.
struct Shared {
  int members = 0, joined = 0;
  std::map<std::pair<int, int>, std::deque<Sent>> sent;  // by source and destination
  std::deque<Sum> sums;                                  // the k-th calls belong together
  // What graphs have brought, over and over: messages by source and destination, and what members
  // have brought to the k-th sum, each time.
  std::map<std::pair<int, int>, std::deque<Bytes>> passed;
  std::map<std::size_t, std::map<int, std::vector<Bytes>>> summed;
};

struct Receive {
  void* to = nullptr;
  std::size_t bytes = 0;
  int from = 0;
  void* stream = nullptr;
};

/// A member's call of a sum, the so many-th of the communicator.
struct Place {
  std::size_t turn = 0;
  std::byte* to = nullptr;
  void* stream = nullptr;
};

struct Member {
  const char* name = nullptr;  // kept as NCCL keeps it: the caller's own
  std::string name_at_first;
  std::shared_ptr<void> buffers;
  std::shared_ptr<Shared> shared;
  int index = 0;
  std::deque<Receive> receives;  // that have met no send yet
  std::deque<Place> sums;        // that not all members have called yet
  std::size_t summed = 0;        // calls so far
};

struct World {
  std::mutex mutex;
  const pipewright_cuda* cuda = nullptr;
  std::map<std::string, std::shared_ptr<Shared>> by_id;
  std::vector<std::unique_ptr<Member>> members;
  std::vector<Sent> passed_on;  // a stream may still have to read them
  int next_id = 0, calls = 0, sums = 0, scattered = 0, gathered = 0, threads = 0;
  std::int64_t allocations = 0;  // when the last communicator was made
  bool notes_calls = false;
  int groups = 0;
  std::vector<HostNcclCall> noted;
};

World& world() {
  static World one;
  return one;
}

constexpr int kDone = PIPEWRIGHT_NCCL_DONE, kInProgress = PIPEWRIGHT_NCCL_IN_PROGRESS;
constexpr int kInvalid = 4;

std::size_t size_of(int kind) {
  switch (kind) {
    case PIPEWRIGHT_NCCL_FLOAT64:
      return 8;
    case PIPEWRIGHT_NCCL_FLOAT32:
      return 4;
    case PIPEWRIGHT_NCCL_BF16:
      return 2;
    default:
      return 1;
  }
}

int begin(char*, std::size_t) { return 0; }
int version() { return 22809; }
const char* text(int) { return "the host's NCCL was called wrongly"; }
const char* last_words() { return ""; }

int unique_id(void* id) {
  const std::scoped_lock lock(world().mutex);
  std::memset(id, 0, PIPEWRIGHT_NCCL_ID_BYTES);
  const std::string number = std::to_string(++world().next_id);
  std::memcpy(id, number.data(), number.size());
  return kDone;
}

thread_local bool in_group = false;
thread_local int group_number = -1;

void note(const Member& member, SumKind kind, std::size_t count, int type, int peer = -1) {
  if (!world().notes_calls) return;
  world().noted.push_back(
      {member.name_at_first, member.index, kind, count, type, peer, in_group ? group_number : -1});
}

int join(void** communicator, int members, const void* id, int index, int most_ctas,
         const char* name) {
  World& all = world();
  const std::scoped_lock lock(all.mutex);
  auto& shared = all.by_id[static_cast<const char*>(id)];
  if (shared == nullptr) shared = std::make_shared<Shared>();
  shared->members = members;
  ++shared->joined;
  all.members.push_back(std::make_unique<Member>(
      Member{name,
             name,
             {all.cuda->allocate(static_cast<std::size_t>(most_ctas * kHostNcclBytesOfCta)),
              all.cuda->release},
             shared,
             index,
             {},
             {},
             0}));
  all.allocations = host_memory().allocations;
  *communicator = all.members.back().get();
  return kInProgress;
}

/// Data as it is when the stream comes to it, and an event after that.
int bring(const void* data, std::size_t bytes, void* stream, Sent& sent) {
  const World& all = world();
  sent = {{std::malloc(bytes), std::free}, bytes, {all.cuda->event(0), all.cuda->release_event}};
  if (all.cuda->copy(stream, sent.copy.get(), data, bytes) != 0) return kInvalid;
  return all.cuda->record(sent.ready.get(), stream) == 0 ? kDone : kInvalid;
}

int add_to(int type, void* stream, std::size_t bytes, const std::byte* from, std::byte* to) {
  const pipewright_cuda& cuda = *world().cuda;
  if (type == PIPEWRIGHT_NCCL_BF16) return cuda.bf16.add_to(stream, bytes / 2, from, to);
  if (type == PIPEWRIGHT_NCCL_FLOAT32) return cuda.kernels.add_to(stream, bytes / 4, from, to);
  return host::put(stream, [=] {
    for (std::size_t at = 0; at < bytes; at += sizeof(double)) {
      double one = 0, sum = 0;
      std::memcpy(&one, from + at, sizeof one);
      std::memcpy(&sum, to + at, sizeof sum);
      sum += one;
      std::memcpy(to + at, &sum, sizeof sum);
    }
  });
}

/// In the order of members, so that all of them come to the same bits. Of a scattered sum a member
/// is left with its part; of a gathering it has the parts of all.
int put_sum(const Place& place, const Sum& sum, const Member& own) {
  const pipewright_cuda& cuda = *world().cuda;
  const std::size_t bytes = sum.brought.begin()->second.bytes;
  const bool gathers = sum.kind == SumKind::AllGather;
  const bool scatters = sum.kind == SumKind::ReduceScatter;
  const std::size_t part = scatters ? bytes / sum.brought.size() : bytes;
  const std::size_t first = scatters ? part * static_cast<std::size_t>(own.index) : 0;
  if (!gathers && cuda.clear(place.stream, place.to, part) != 0) return kInvalid;
  for (const auto& [member, sent] : sum.brought) {
    if (sent.bytes != bytes) return kInvalid;
    const auto* const from = static_cast<const std::byte*>(sent.copy.get()) + first;
    if (cuda.stream_waits(place.stream, sent.ready.get()) != 0) return kInvalid;
    const int failed =
        gathers ? cuda.copy(place.stream, place.to + bytes * static_cast<std::size_t>(member), from,
                            bytes)
                : add_to(sum.type, place.stream, part, from, place.to);
    if (failed != 0) return kInvalid;
  }
  return kDone;
}

/// Sums that all members have called are put on the member's streams.
int put_sums(Member& member) {
  while (!member.sums.empty()) {
    const Place& place = member.sums.front();
    const Sum& sum = member.shared->sums[place.turn];
    if (sum.brought.size() < static_cast<std::size_t>(member.shared->members)) return kInProgress;
    const int result = put_sum(place, sum, member);
    if (result != kDone) return result;
    member.sums.pop_front();
  }
  return kDone;
}

/// Receives that have met their sends are put on their streams.
int state(void* communicator) {
  World& all = world();
  const std::scoped_lock lock(all.mutex);
  auto& member = *static_cast<Member*>(communicator);
  if (member.name_at_first != member.name) return kInvalid;
  if (member.shared->joined < member.shared->members) return kInProgress;
  for (auto it = member.receives.begin(); it != member.receives.end();) {
    auto& line = member.shared->sent[{it->from, member.index}];
    if (line.empty()) {
      ++it;
      continue;
    }
    if (line.front().bytes != it->bytes) return kInvalid;
    if (all.cuda->stream_waits(it->stream, line.front().ready.get()) != 0) return kInvalid;
    if (all.cuda->copy(it->stream, it->to, line.front().copy.get(), it->bytes) != 0)
      return kInvalid;
    all.passed_on.push_back(std::move(line.front()));
    line.pop_front();
    it = member.receives.erase(it);
  }
  const int sums = put_sums(member);
  return sums == kDone && !member.receives.empty() ? kInProgress : sums;
}

int end(void* communicator) {
  const std::scoped_lock lock(world().mutex);
  static_cast<Member*>(communicator)->buffers.reset();
  return kDone;
}
int finalize(void*) { return kDone; }
int group_start() {
  in_group = true;
  const std::scoped_lock lock(world().mutex);
  group_number = world().groups++;
  return kDone;
}
int group_end() {
  in_group = false;
  const std::scoped_lock lock(world().mutex);
  ++world().threads;
  return kDone;
}
void note_call(World& all) {
  ++all.calls;
  if (!in_group) ++all.threads;
}

// --- In captures: what members bring is passed on by the graphs' own work ---

Bytes bytes_at(const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(data);
  return {from, from + bytes};
}

int send_in_graph(const Member& member, int peer, const void* data, std::size_t bytes,
                  void* stream) {
  auto& line = member.shared->passed[{member.index, peer}];
  return host::put(stream,
                   [=, &line, keep = member.shared] { line.push_back(bytes_at(data, bytes)); });
}

int receive_in_graph(const Member& member, int peer, void* to, std::size_t bytes, void* stream) {
  auto& line = member.shared->passed[{peer, member.index}];
  return host::put_when(
      stream, [&line, keep = member.shared] { return !line.empty(); },
      [=, &line, keep = member.shared] {
        if (line.front().size() == bytes) std::memcpy(to, line.front().data(), bytes);
        line.pop_front();
      });
}

template <class Number>
void add_numbers(const Bytes& from, std::size_t first, std::size_t bytes, std::byte* to) {
  const auto* const x = reinterpret_cast<const Number*>(from.data() + first);
  auto* const y = reinterpret_cast<Number*>(to);
  for (std::size_t i = 0; i < bytes / sizeof(Number); ++i) {
    if constexpr (sizeof(Number) == sizeof(double))
      y[i] = y[i] + x[i];
    else
      y[i] = static_cast<float>(y[i]) + static_cast<float>(x[i]);
  }
}

/// As put_sum(), of the members' parts of one time.
void sum_in_graph(const std::map<int, std::vector<Bytes>>& brought, std::size_t time,
                  const Sum& sum, int index, std::byte* to) {
  const std::size_t bytes = brought.begin()->second[time].size();
  const bool scatters = sum.kind == SumKind::ReduceScatter;
  const std::size_t part = scatters ? bytes / brought.size() : bytes;
  const std::size_t first = scatters ? part * static_cast<std::size_t>(index) : 0;
  if (sum.kind != SumKind::AllGather) std::memset(to, 0, part);
  for (const auto& [member, times] : brought) {
    const Bytes& one = times[time];
    if (sum.kind == SumKind::AllGather)
      std::memcpy(to + bytes * static_cast<std::size_t>(member), one.data(), bytes);
    else if (sum.type == PIPEWRIGHT_NCCL_BF16)
      add_numbers<exec::cuda::Bfloat16>(one, first, part, to);
    else if (sum.type == PIPEWRIGHT_NCCL_FLOAT64)
      add_numbers<double>(one, first, part, to);
    else
      add_numbers<float>(one, first, part, to);
  }
}

int join_sum_in_graph(SumKind kind, int type, const Member& member, std::size_t turn,
                      const void* from, std::size_t bytes, std::byte* to, void* stream) {
  const std::shared_ptr<Shared> shared = member.shared;
  auto& brought = shared->summed[turn];
  const int index = member.index;
  if (host::put(stream, [=, &brought] { brought[index].push_back(bytes_at(from, bytes)); }) != 0)
    return kInvalid;
  const auto time = std::make_shared<std::size_t>(0);
  const auto all_there = [=, &brought] {
    return brought.size() == static_cast<std::size_t>(shared->members) &&
           std::all_of(brought.begin(), brought.end(),
                       [&](const auto& one) { return one.second.size() > *time; });
  };
  const auto take = [=, &brought] {
    sum_in_graph(brought, (*time)++, {kind, type, {}}, index, to);
  };
  return host::put_when(stream, all_there, take) == 0 ? kDone : kInvalid;
}

int send(const void* data, std::size_t count, int kind, int peer, void* communicator,
         void* stream) {
  World& all = world();
  const std::scoped_lock lock(all.mutex);
  const auto& member = *static_cast<Member*>(communicator);
  if (host::is_captured(stream)) {
    note(member, HostNcclCall::Kind::Send, count, kind, peer);
    note_call(all);
    return send_in_graph(member, peer, data, count * size_of(kind), stream);
  }
  Sent sent;
  if (bring(data, count * size_of(kind), stream, sent) != kDone) return kInvalid;
  member.shared->sent[{member.index, peer}].push_back(std::move(sent));
  note(member, HostNcclCall::Kind::Send, count, kind, peer);
  note_call(all);
  return kInProgress;
}

int receive(void* data, std::size_t count, int kind, int peer, void* communicator, void* stream) {
  World& all = world();
  const std::scoped_lock lock(all.mutex);
  auto& member = *static_cast<Member*>(communicator);
  if (host::is_captured(stream)) {
    note(member, HostNcclCall::Kind::Receive, count, kind, peer);
    note_call(all);
    return receive_in_graph(member, peer, data, count * size_of(kind), stream);
  }
  member.receives.push_back({data, count * size_of(kind), peer, stream});
  note(member, HostNcclCall::Kind::Receive, count, kind, peer);
  note_call(all);
  return kInProgress;
}

/// `count` of what this member brings. The k-th calls of all members have to be of one kind.
int join_sum(SumKind kind, const void* from, void* to, std::size_t count, int type, Member& member,
             void* stream) {
  const std::size_t turn = member.summed++;
  if (turn == member.shared->sums.size()) member.shared->sums.push_back({kind, type, {}});
  Sum& sum = member.shared->sums[turn];
  if (host::is_captured(stream)) {
    if (sum.kind != kind || sum.type != type) return kInvalid;
    return join_sum_in_graph(kind, type, member, turn, from, count * size_of(type),
                             static_cast<std::byte*>(to), stream);
  }
  if (sum.kind != kind || sum.type != type ||
      bring(from, count * size_of(type), stream, sum.brought[member.index]) != kDone)
    return kInvalid;
  member.sums.push_back({turn, static_cast<std::byte*>(to), stream});
  return kInProgress;
}

bool is_of_floats(int type) {
  return type == PIPEWRIGHT_NCCL_BF16 || type == PIPEWRIGHT_NCCL_FLOAT32;
}

int all_reduce(const void* from, void* to, std::size_t count, int type, void* communicator,
               void* stream) {
  const std::scoped_lock lock(world().mutex);
  auto& member = *static_cast<Member*>(communicator);
  if (!is_of_floats(type) && type != PIPEWRIGHT_NCCL_FLOAT64) return kInvalid;
  ++world().sums;
  note(member, SumKind::AllReduce, count, type);
  return join_sum(SumKind::AllReduce, from, to, count, type, member, stream);
}

int reduce_scatter(const void* from, void* to, std::size_t count, int type, void* communicator,
                   void* stream) {
  const std::scoped_lock lock(world().mutex);
  auto& member = *static_cast<Member*>(communicator);
  if (!is_of_floats(type)) return kInvalid;
  ++world().scattered;
  note(member, SumKind::ReduceScatter, count, type);
  const auto members = static_cast<std::size_t>(member.shared->members);
  return join_sum(SumKind::ReduceScatter, from, to, members * count, type, member, stream);
}

int all_gather(const void* from, void* to, std::size_t count, int type, void* communicator,
               void* stream) {
  const std::scoped_lock lock(world().mutex);
  auto& member = *static_cast<Member*>(communicator);
  if (type != PIPEWRIGHT_NCCL_BYTES) return kInvalid;
  ++world().gathered;
  note(member, SumKind::AllGather, count, type);
  return join_sum(SumKind::AllGather, from, to, count, type, member, stream);
}

constexpr pipewright_nccl kTable = {
    PIPEWRIGHT_NCCL_ABI, begin,     version, 22809,   text,       last_words,
    unique_id,           join,      state,   end,     finalize,   end,
    group_start,         group_end, send,    receive, all_reduce, reduce_scatter,
    all_gather};

}  // namespace

const pipewright_nccl& host_nccl(const pipewright_cuda& cuda) {
  const std::scoped_lock lock(world().mutex);
  world().cuda = &cuda;
  return kTable;
}

int host_nccl_calls() {
  const std::scoped_lock lock(world().mutex);
  return world().calls;
}

int host_nccl_threads() {
  const std::scoped_lock lock(world().mutex);
  return world().threads;
}

std::int64_t host_nccl_late_allocations() {
  const std::scoped_lock lock(world().mutex);
  return host_memory().allocations - world().allocations;
}

int host_nccl_sums() {
  const std::scoped_lock lock(world().mutex);
  return world().sums;
}

int host_nccl_scattered_sums() {
  const std::scoped_lock lock(world().mutex);
  return world().scattered;
}

int host_nccl_gatherings() {
  const std::scoped_lock lock(world().mutex);
  return world().gathered;
}

void host_nccl_note_calls() {
  const std::scoped_lock lock(world().mutex);
  world().notes_calls = true;
  world().noted.clear();
}

std::vector<HostNcclCall> host_nccl_noted_calls() {
  const std::scoped_lock lock(world().mutex);
  world().notes_calls = false;
  return std::exchange(world().noted, {});
}

}  // namespace pipewright::tests
