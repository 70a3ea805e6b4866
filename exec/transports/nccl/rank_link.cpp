#include "exec/transports/nccl/rank_link.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/error.hpp"
#include "core/program/start_rules.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec::nccl {
namespace {

constexpr auto kPoll = std::chrono::microseconds(20);
constexpr std::int64_t kCloseNs = 5'000'000'000;
constexpr std::size_t kScratchBytes = 256;

std::vector<std::string> names_of(const CommunicatorPlan& plan) {
  std::vector<std::string> names;
  for (const Communicator& communicator : plan.communicators)
    names.push_back(name_of(communicator));
  return names;
}

/// Of the GPU that the thread has entered.
std::int64_t free_bytes(const pipewright_cuda& cuda) {
  std::int64_t free_now = 0, total = 0;
  cuda::require(cuda, cuda.memory(&free_now, &total));
  return free_now;
}

}  // namespace

RankLink::RankLink(const pipewright_nccl& nccl, const Program& program,
                   const CommunicatorPlan& plan, RankId rank, std::function<void()> between)
    : nccl_(nccl),
      program_(program),
      plan_(plan),
      rank_(rank),
      begin_(program.rank_begin[static_cast<std::size_t>(rank.value)]),
      end_(program.rank_begin[static_cast<std::size_t>(rank.value) + 1]),
      between_(std::move(between)),
      lanes_(lane_table(program)),
      names_(names_of(plan)),
      places_(places_in_flight(program, rank)),
      communicators_(plan.communicators.size(), nullptr) {
  begin_step();
  for (InstructionId id = begin_; id < end_; ++id) {
    if (code(id).in_collective() && !is_group_collective(code(id).kind)) sums_.push_back(id);
  }
}

/// In good order where nothing was aborted; a communicator that does not close in time is left.
RankLink::~RankLink() {
  const std::int64_t deadline = local::steady_ns() + kCloseNs;
  if (cuda_ != nullptr) static_cast<void>(cuda_->enter(gpu_, nullptr));
  for (void* communicator : communicators_) {
    if (communicator == nullptr) continue;
    bool closes = nccl_.finalize(communicator) == PIPEWRIGHT_NCCL_DONE;
    while (!closes && local::steady_ns() < deadline) {
      const int state = nccl_.state(communicator);
      closes = state == PIPEWRIGHT_NCCL_DONE;
      if (!closes && state != PIPEWRIGHT_NCCL_IN_PROGRESS) break;
      std::this_thread::sleep_for(kPoll);
    }
    static_cast<void>(closes ? nccl_.destroy(communicator) : nccl_.abort(communicator));
  }
  for (std::size_t lane = 1; lane < streams_.size(); ++lane) cuda_->release_stream(streams_[lane]);
}

// --- Communicators ---

void RankLink::join(DeviceSide device, const std::vector<UniqueId>& ids) {
  device_ = std::move(device);
  const cuda::Queue& queue = *device_.queue;
  {
    const std::scoped_lock lock(mutex_);
    cuda_ = &queue.cuda();
  }
  gpu_ = queue.site().gpu;
  queue.enter();
  const auto first = lanes_.rank_lane_begin[static_cast<std::size_t>(rank_.value)];
  const auto past = lanes_.rank_lane_begin[static_cast<std::size_t>(rank_.value) + 1];
  streams_ = {queue.computing()};
  for (auto lane = first + 1; program_.policy.issue == Issue::Stream && lane < past; ++lane) {
    streams_.push_back(cuda::required(*cuda_, cuda_->stream(queue.site().partition)));
    device_.queue->add_stream(streams_.back());
  }
  const Buffer scratch = device_.queue->memory().take(kScratchBytes);
  queue.clear(scratch.at(), kScratchBytes);
  const std::int64_t free_before = free_bytes(*cuda_);
  for (const std::uint32_t c : plan_.joined_by(rank_)) make(c, ids[c]);
  for (const WarmUp& one : plan_.warm_ups) {
    if (communicators_[one.communicator] != nullptr) warm_up(one, scratch);
  }
  queue.finish(device_.queue->record(queue.computing()), between_);
  library_bytes_ = std::max<std::int64_t>(0, free_before - free_bytes(*cuda_));
}

void RankLink::make(std::uint32_t c, const UniqueId& id) {
  const Communicator& what = plan_.communicators[c];
  call(
      [&] {
        return nccl_.join(&communicators_[c], static_cast<int>(what.members.size()), id.data(),
                          what.index_of(rank_), what.most_ctas, names_[c].c_str());
      },
      "making a communicator");
  settle(c);
}

/// An element over each edge in one group, or a sum of one element.
void RankLink::warm_up(const WarmUp& what, const Buffer& scratch) {
  void* const communicator = communicators_[what.communicator];
  void* const stream = device_.queue->computing();
  const int own = plan_.communicators[what.communicator].index_of(rank_);
  float* const element = scratch.floats();
  constexpr int kKind = PIPEWRIGHT_NCCL_FLOAT32;
  if (what.edges.empty()) {
    call([&] { return nccl_.all_reduce(element, element, 1, kKind, communicator, stream); },
         "connecting");
    return settle(what.communicator);
  }
  call([&] { return nccl_.group_start(); }, "connecting");
  for (const auto& [from, to] : what.edges) {
    if (from == own)
      call([&, peer = to] { return nccl_.send(element, 1, kKind, peer, communicator, stream); },
           "connecting");
    if (to == own)
      call(
          [&, peer = from] {
            return nccl_.receive(element + 1, 1, kKind, peer, communicator, stream);
          },
          "connecting");
  }
  call([&] { return nccl_.group_end(); }, "connecting");
  settle(what.communicator);
}

void RankLink::call(const std::function<int()>& function, const char* what) {
  {
    const std::scoped_lock lock(mutex_);
    if (!aborted_) return require(nccl_, function(), what);
  }
  between_();
  throw RunError("NCCL was aborted");  // whoever aborts has stopped the run
}

void RankLink::settle(std::uint32_t c) {
  while (true) {
    int state = PIPEWRIGHT_NCCL_DONE;
    call([&] { return state = nccl_.state(communicators_[c]); }, "a call");
    if (state == PIPEWRIGHT_NCCL_DONE) return;
    between_();
    std::this_thread::sleep_for(kPoll);
  }
}

void RankLink::look_at_communicators() {
  const std::scoped_lock lock(mutex_);
  if (aborted_) return;
  for (std::size_t c = 0; c < communicators_.size(); ++c) {
    if (communicators_[c] != nullptr)
      require(nccl_, nccl_.state(communicators_[c]), name_of(plan_.communicators[c]));
  }
}

void RankLink::abort() noexcept {
  const std::scoped_lock lock(mutex_);
  aborted_ = true;
  for (void*& communicator : communicators_) {
    if (communicator != nullptr) static_cast<void>(nccl_.abort(communicator));
    communicator = nullptr;
  }
}

// --- Calls ---

void RankLink::begin_step() {
  waiting_.clear();
  batch_.clear();
  received_.clear();
  received_.resize(end_ - begin_);
  next_sum_ = 0;
  issued_sums_.assign(end_ - begin_, 0);
  counting_.reset();
  const std::scoped_lock lock(mutex_);
  parts_.assign(end_ - begin_, nullptr);
  ended_before_ += called_.size();
  behind_.assign(end_ - begin_, nullptr);
  called_.clear();
  over_ = 0;
}

void RankLink::issue(InstructionId end, PayloadPtr data) {
  if (is_replayed()) return;
  const bool is_ready = data != nullptr || is_recv(code(end).kind);
  const std::uint32_t communicator = communicator_of(end);
  waiting_[communicator].push_back({end, std::move(data), is_ready});
  flush(communicator);
  if (ends_run(end)) close_batch();
}

void RankLink::provide(InstructionId send, PayloadPtr data) {
  if (is_replayed()) return;
  const std::uint32_t communicator = communicator_of(send);
  for (Waiting& one : waiting_[communicator]) {
    if (one.end != send) continue;
    one.data = std::move(data);
    one.is_ready = true;
  }
  flush(communicator);
  if (!is_grouped()) close_batch();
}

void RankLink::flush(std::uint32_t communicator) {
  auto& line = waiting_[communicator];
  while (!line.empty() && line.front().is_ready) {
    Waiting next = std::move(line.front());
    line.pop_front();
    prepare_call(next.end, std::move(next.data));
  }
}

void* RankLink::stream_of(InstructionId end) const {
  if (program_.policy.issue != Issue::Stream) return streams_.front();
  return streams_[static_cast<std::size_t>(lanes_.number_of(lanes_.lane_of[end]))];
}

/// Whether the rank issues no transfer end right after this one.
bool RankLink::ends_run(InstructionId end) const {
  const bool at_start = code(end).has(Instruction::kAtStart);
  InstructionId next = end + 1;
  while (at_start && next < end_ && !code(next).has(Instruction::kAtStart)) ++next;
  return next == end_ || !is_transfer(code(next).kind) ||
         code(next).has(Instruction::kAtStart) != at_start;
}

/// A batch holds one call of each communicator, and none whose end the new one waits for.
void RankLink::make_room_in_batch(InstructionId end) {
  if (is_grouped()) return;
  const InstructionId place = places_.empty() ? kNoInstruction : places_[end - begin_];
  const bool fits = std::none_of(batch_.begin(), batch_.end(), [&](const Made& made) {
    return made.end == place || communicator_of(made.end) == communicator_of(end);
  });
  if (!fits) close_batch();
}

/// Behind what the compute lane has reached, and behind its data. The end whose place it takes
/// holds up the compute lane too (docs/semantics.md §2.2).
void RankLink::wait_for_turn(InstructionId end, const cuda::Event& ready) {
  cuda::Queue& queue = *device_.queue;
  const InstructionId place = places_.empty() ? kNoInstruction : places_[end - begin_];
  if (place != kNoInstruction) queue.wait(queue.computing(), behind_[place - begin_]);
  void* const stream = stream_of(end);
  if (stream != queue.computing() && !code(end).has(Instruction::kAtStart))
    queue.wait(stream, queue.record(queue.computing()));
  if (ready != nullptr) queue.wait(stream, ready);
}

void RankLink::prepare_call(InstructionId end, PayloadPtr data) {
  make_room_in_batch(end);
  cuda::Queue& queue = *device_.queue;
  device_.enter();
  std::unique_ptr<cuda::DevicePayload> payload;
  if (is_send(code(end).kind)) {
    payload.reset(dynamic_cast<cuda::DevicePayload*>(data.get()));
    if (payload == nullptr) throw RunError("NCCL sends what lies on a GPU, and this does not");
    static_cast<void>(data.release());
    wait_for_turn(end, payload->ready);
  } else {
    Buffer own = queue.messages().take(device_.message_bytes(end));
    // The pool hands out memory that the arriving stream may write.
    wait_for_turn(end, queue.record(queue.arriving()));
    payload = std::make_unique<cuda::DevicePayload>(std::move(own), nullptr, rank_);
  }
  batch_.push_back({end, std::move(payload), device_.timeline->mark(stream_of(end))});
}

void RankLink::make_call(const Made& made) {
  const std::uint32_t c = communicator_of(made.end);
  const Route& route = program_.routes[code(made.end).route];
  const bool sends = is_send(code(made.end).kind);
  const int peer = plan_.communicators[c].index_of(sends ? route.destination : route.source);
  void* const stream = stream_of(made.end);
  cuda::DevicePayload& message = *made.payload;
  constexpr int kKind = PIPEWRIGHT_NCCL_BYTES;
  call(
      [&] {
        return sends ? nccl_.send(message.data(), message.size(), kKind, peer, communicators_[c],
                                  stream)
                     : nccl_.receive(message.data(), message.size(), kKind, peer, communicators_[c],
                                     stream);
      },
      program_.text(made.end).c_str());
}

void RankLink::close_batch() {
  if (batch_.empty()) return;
  device_.queue->enter();
  std::vector<Made> batch = std::exchange(batch_, {});
  const bool is_group = batch.size() > 1 || is_grouped();
  if (is_group) call([&] { return nccl_.group_start(); }, "a group");
  for (const Made& made : batch) make_call(made);
  if (is_group) call([&] { return nccl_.group_end(); }, "a group");
  for (const Made& made : batch) settle(communicator_of(made.end));
  for (Made& made : batch) finish_call(std::move(made));
}

cuda::Event RankLink::note_call(InstructionId id, cuda::Event start) {
  cuda::Event over = device_.timeline->mark(stream_of(id));
  cuda::Event behind =
      device_.queue->record(stream_of(id));  // in a capture nothing waits for marks
  {
    const std::scoped_lock lock(mutex_);
    behind_[id - begin_] = behind;
    called_.push_back(behind);
  }
  device_.timeline->note_transfer(id, std::move(start), std::move(over), false);
  return behind;
}

void RankLink::finish_call(Made made) {
  cuda::Event behind = note_call(made.end, std::move(made.start));
  if (is_send(code(made.end).kind))
    return cuda::Pool::guard(made.payload->buffer, std::move(behind));
  made.payload->ready = std::move(behind);
  received_[made.end - begin_] = std::move(made.payload);
}

// --- Sums over replicas ---

void RankLink::contribute(InstructionId member, std::shared_ptr<const cuda::DevicePart> part) {
  const std::scoped_lock lock(mutex_);
  parts_[member - begin_] = std::move(part);
}

bool RankLink::is_sum(InstructionId member) const {
  const std::scoped_lock lock(mutex_);
  return parts_[member - begin_] != nullptr;
}

/// All members have these in one order (docs/semantics.md §3.2), so NCCL is called in that. A group
/// has a communicator of its own.
void RankLink::issue_sum(InstructionId member) {
  if (is_replayed()) return;
  if (is_call(code(member).kind)) return make_sum(member);
  issued_sums_[member - begin_] = 1;
  for (; next_sum_ < sums_.size() && issued_sums_[sums_[next_sum_] - begin_] != 0; ++next_sum_) {
    if (is_sum(sums_[next_sum_])) make_sum(sums_[next_sum_]);
  }
}

/// A member's part of the array, as the k-th of equal ones, begins where NCCL looks for it in
/// place.
int RankLink::call_collective(InstructionId member, const ArrayOfReplicas& array,
                              void* stream) const {
  const Collective& collective = program_.collectives[code(member).route];
  const Communicator& replicas = plan_.communicators[array.communicator];
  void* const communicator = communicators_[array.communicator];
  const std::size_t part = array.bytes / replicas.members.size();
  std::byte* const own = array.at + part * static_cast<std::size_t>(replicas.index_of(rank_));
  if (collective.kind == ActionKind::Unshard)
    return nccl_.all_gather(own, array.at, part, PIPEWRIGHT_NCCL_BYTES, communicator, stream);
  constexpr int kKind = PIPEWRIGHT_NCCL_FLOAT32;
  if (array.is_scattered)
    return nccl_.reduce_scatter(array.at, own, part / sizeof(float), kKind, communicator, stream);
  return nccl_.all_reduce(array.at, array.at, array.bytes / sizeof(float), kKind, communicator,
                          stream);
}

/// What all members have; what else is gathered; and of experts those that it holds with others.
std::vector<RankLink::ArrayOfReplicas> RankLink::arrays_of(InstructionId member,
                                                           const cuda::DevicePart& part) const {
  const auto of = [](const Buffer& buffer) { return static_cast<std::byte*>(buffer.at()); };
  const std::uint32_t collective = code(member).route;
  const std::uint32_t all = plan_.of_collective[collective];
  const auto& of_experts = plan_.of_experts[collective];
  const bool scatters = program_.collectives[collective].sharded;
  std::byte* const at = of(part.front.array);
  const std::size_t common = part.front.bytes + part.bytes_behind;
  std::vector<ArrayOfReplicas> arrays;
  const auto add = [&](const ArrayOfReplicas& array) {
    if (array.bytes > 0) arrays.push_back(array);
  };
  add({all, at, part.front.bytes, scatters});
  add({all, at + part.front.bytes, part.bytes_behind, false});
  add({all, of(part.beside.array), part.beside.bytes, scatters});
  if (of_experts.empty()) return arrays;
  const int own = plan_.communicators[all].index_of(rank_);
  const std::uint32_t holders = of_experts[static_cast<std::size_t>(own)];
  if (holders != kNoCommunicator)
    add({holders, at + common, part.front.array.bytes() - common, false});
  return arrays;
}

/// What ranks that divide layers bring together, in place, or all of them. Rows are of whatever
/// numbers.
int RankLink::call_group(InstructionId member, const cuda::ArrayOfGroup& array,
                         void* stream) const {
  const std::uint32_t c = plan_.of_collective[code(member).route];
  const Communicator& group = plan_.communicators[c];
  void* const communicator = communicators_[c];
  const int kind = array.is_narrow ? PIPEWRIGHT_NCCL_BF16 : PIPEWRIGHT_NCCL_FLOAT32;
  const std::size_t bytes = array.is_narrow ? sizeof(cuda::Bfloat16) : sizeof(float);
  const std::size_t part = array.size / group.members.size();
  auto* const own = static_cast<std::byte*>(array.at) +
                    part * bytes * static_cast<std::size_t>(group.index_of(rank_));
  switch (code(member).kind) {
    case ActionKind::ReduceNorm:
      return nccl_.all_reduce(array.at, array.at, array.size, PIPEWRIGHT_NCCL_FLOAT64, communicator,
                              stream);
    case ActionKind::AllReduce:
    case ActionKind::ReduceTied:
      return nccl_.all_reduce(array.at, array.at, array.size, kind, communicator, stream);
    case ActionKind::ReduceScatter:
      return nccl_.reduce_scatter(array.at, own, part, kind, communicator, stream);
    case ActionKind::AllGather:
      return nccl_.all_gather(own, array.at, part * bytes, PIPEWRIGHT_NCCL_BYTES, communicator,
                              stream);
    default:
      throw Bug(program_.text(member) + " is called, which no GPU needs");
  }
}

void RankLink::make_sum(InstructionId member) {
  cuda::Queue& queue = *device_.queue;
  device_.enter();
  const std::uint32_t c = plan_.of_collective[code(member).route];
  const cuda::DevicePart& part = *parts_[member - begin_];
  void* const stream = stream_of(member);
  // Members' calls of one communicator keep their order, and one exchange is counted at a time.
  const bool counts = part.exchange.rows != nullptr && part.exchange.rows->make_room;
  if (counting_ && (counts || plan_.of_collective[code(counting_->member).route] == c))
    finish_counting();
  if (counts) return begin_counting(member, *part.exchange.rows, stream);
  if (stream != queue.computing()) queue.wait(stream, part.ready);
  cuda::Event start = device_.timeline->mark(stream);
  if (!part.round.hops.empty()) send_round(member, part.round, stream);
  if (part.exchange.rows != nullptr) exchange_rows(member, part);
  if (part.of_group.at != nullptr) {
    call([&] { return call_group(member, part.of_group, stream); }, program_.text(member).c_str());
    settle(c);
  }
  for (const ArrayOfReplicas& array : arrays_of(member, part)) {
    call([&] { return call_collective(member, array, stream); }, program_.text(member).c_str());
    settle(array.communicator);
  }
  static_cast<void>(note_call(member, std::move(start)));
}

/// Whoever takes it holds the memory from now on.
PartPtr RankLink::sum(InstructionId member) {
  const std::scoped_lock lock(mutex_);
  const auto part = std::exchange(parts_[member - begin_], std::make_shared<cuda::DevicePart>());
  return std::make_shared<cuda::DevicePart>(part->front, 0, behind_[member - begin_]);
}

bool RankLink::is_called(InstructionId end) const {
  if (is_replayed()) return true;
  const std::scoped_lock lock(mutex_);
  return behind_[end - begin_] != nullptr;
}

PayloadPtr RankLink::take(InstructionId recv) { return std::move(received_[recv - begin_]); }

/// Whoever asks for an event of a capture spoils it (CUDA Programming Guide, stream capture).
bool RankLink::has_ended(InstructionId end) const {
  if (way_.load() != cuda::StepWay::Enqueued) return is_replayed();
  const std::scoped_lock lock(mutex_);
  const cuda::Event& behind = behind_[end - begin_];
  return behind != nullptr && cuda_->is_over(behind.get()) == 1;
}

std::uint64_t RankLink::ended_count() const {
  const std::scoped_lock lock(mutex_);
  if (way_.load() != cuda::StepWay::Enqueued) return ended_before_;
  while (over_ < called_.size() && cuda_->is_over(called_[over_].get()) == 1) ++over_;
  return ended_before_ + over_;
}

}  // namespace pipewright::exec::nccl
