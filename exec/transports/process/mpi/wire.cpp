#include "exec/transports/process/mpi/wire.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/built_places.hpp"
#include "exec/base/module_file.hpp"

namespace pipewright::exec::mpi {
namespace {

constexpr std::size_t kMostBytesAtOnce = std::size_t{1} << 30U;
constexpr const char* kLost = "a message of MPI was lost";

bool is_small(const Frame& frame, std::size_t room) {
  return sizeof(FrameHead) + frame.note.size() + frame.values.size() * sizeof(float) <= room;
}

}  // namespace

// --- The module ---

const pipewright_mpi& load_module() {
  return *static_cast<const pipewright_mpi*>(
      load({.file = "libpipewright_mpi.so",
            .built_at = kBuiltMpiModule,
            .entry = PIPEWRIGHT_MPI_ENTRY,
            .abi = PIPEWRIGHT_MPI_ABI,
            .not_there = "it was not built; install libopenmpi-dev and openmpi-bin and build again",
            .not_loaded = "install openmpi-bin, or put the lib folder of an Open MPI on "
                          "LD_LIBRARY_PATH"}));
}

int processes_of_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"}) {
    if (const char* size = std::getenv(name)) return std::max(1, std::atoi(size));
  }
  return 0;
}

std::optional<int> local_process_of_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (const char* number = std::getenv(name)) return std::max(0, std::atoi(number));
  }
  return std::nullopt;
}

// --- The wire ---

MpiWire::MpiWire(const pipewright_mpi& mpi) : mpi_(mpi) {
  char why[256] = "";
  if (mpi_.begin(why, sizeof why) != 0) throw MachineError(std::string("MPI: ") + why);
  process_ = mpi_.process();
  processes_ = mpi_.processes();
  for (std::size_t i = 0; i < kSlots; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    post(*slots_.back());
  }
  if (is_broken()) throw RunError(broken_);
}

// The requests stay with MPI, and so do their buffers, as long as the process lives: it may still
// write into them.
MpiWire::~MpiWire() {
  if (closed_) return;
  struct Left {
    std::vector<std::unique_ptr<Slot>> slots;
    std::list<Sending> sending;
    std::list<Receiving> receiving;
  };
  static std::mutex mutex;
  static auto& all = *new std::vector<Left>;
  const std::scoped_lock lock(mutex);
  all.push_back({std::move(slots_), std::move(sending_), std::move(receiving_)});
}

/// The first reason is the one that counts.
void MpiWire::break_down(const std::string& why) {
  if (broken_.empty()) broken_ = why;
}

void MpiWire::post(Slot& slot) {
  slot.request = mpi_.receive(slot.bytes.data(), slot.bytes.size(), -1, kHeads);
  if (slot.request == nullptr) break_down("MPI does not receive any more");
}

void MpiWire::send(int to, Frame frame) {
  Sending& sending = sending_.emplace_back();
  sending.frame = std::move(frame);
  Frame& own = sending.frame;
  own.head.note_bytes = static_cast<std::uint32_t>(own.note.size());
  own.head.floats = own.values.size();
  const std::size_t note = own.note.size(), floats = own.values.size() * sizeof(float);
  const bool small = is_small(own, kSlotBytes);
  sending.head.resize(sizeof own.head + (small ? note + floats : 0));
  std::memcpy(sending.head.data(), &own.head, sizeof own.head);
  if (small) {
    std::byte* at = sending.head.data() + sizeof own.head;
    if (note > 0) std::memcpy(at, own.note.data(), note);
    if (floats > 0) std::memcpy(at + note, own.values.data(), floats);
  }
  send_piece(sending, sending.head.data(), sending.head.size(), to, kHeads);
  if (!small) {
    send_piece(sending, own.note.data(), note, to, kBodies);
    send_piece(sending, own.values.data(), floats, to, kBodies);
  }
  progress_sends();
}

void MpiWire::send_piece(Sending& sending, const void* data, std::size_t bytes, int to,
                         int channel) {
  const auto* from = static_cast<const std::byte*>(data);
  for (std::size_t done = 0; done < bytes; done += kMostBytesAtOnce) {
    void* request = mpi_.send(from + done, std::min(bytes - done, kMostBytesAtOnce), to, channel);
    if (request == nullptr)
      return break_down("MPI does not send to process " + std::to_string(to) + " any more");
    sending.requests.push_back(request);
  }
}

void MpiWire::receive_piece(Receiving& receiving, void* data, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(data);
  for (std::size_t done = 0; done < bytes; done += kMostBytesAtOnce) {
    void* request = mpi_.receive(to + done, std::min(bytes - done, kMostBytesAtOnce),
                                 receiving.arrived.from, kBodies);
    if (request == nullptr) return break_down("MPI does not receive any more");
    receiving.requests.push_back(request);
  }
}

/// Done or failed: a request that has failed is no request any more.
bool MpiWire::all_done(std::vector<void*>& requests) {
  int from = 0;
  while (!requests.empty()) {
    const int state = mpi_.test(requests.back(), &from);
    if (state == 0) return false;
    requests.pop_back();
    if (state < 0) break_down(kLost);
  }
  return true;
}

void MpiWire::progress_sends() {
  for (auto it = sending_.begin(); it != sending_.end();) {
    if (!all_done(it->requests)) {
      ++it;
      continue;
    }
    if (it->frame.token != kNoToken) sent_.push_back(it->frame.token);
    it = sending_.erase(it);
  }
}

std::vector<std::uint64_t> MpiWire::take_sent() {
  if (!sending_.empty()) progress_sends();
  return std::exchange(sent_, {});
}

std::optional<ArrivedFrame> MpiWire::receive() {
  std::optional<ArrivedFrame> arrived;
  if (!is_broken()) arrived = next_frame();
  if (!is_broken()) return arrived;
  if (!std::exchange(has_said_so_, true)) throw RunError(broken_);
  return std::nullopt;
}

std::optional<ArrivedFrame> MpiWire::next_frame() {
  for (auto it = receiving_.begin(); it != receiving_.end(); ++it) {
    if (!all_done(it->requests)) continue;
    ArrivedFrame arrived = std::move(it->arrived);
    receiving_.erase(it);
    return arrived;
  }
  Slot& slot = *slots_[next_slot_];
  int from = 0;
  const int state = mpi_.test(slot.request, &from);
  if (state == 0) return std::nullopt;
  if (state < 0) {
    slot.request = nullptr;
    break_down(kLost);
    return std::nullopt;
  }
  ArrivedFrame arrived{from, {}};
  Frame& frame = arrived.frame;
  std::memcpy(&frame.head, slot.bytes.data(), sizeof frame.head);
  frame.note.resize(frame.head.note_bytes);
  frame.values.resize(frame.head.floats);
  const std::size_t note = frame.note.size(), floats = frame.values.size() * sizeof(float);
  const bool small = is_small(frame, kSlotBytes);
  if (small) {
    const std::byte* at = slot.bytes.data() + sizeof frame.head;
    if (note > 0) std::memcpy(frame.note.data(), at, note);
    if (floats > 0) std::memcpy(frame.values.data(), at + note, floats);
  }
  post(slot);
  next_slot_ = (next_slot_ + 1) % kSlots;
  if (small) return arrived;
  Receiving& receiving = receiving_.emplace_back(Receiving{std::move(arrived), {}});
  receive_piece(receiving, receiving.arrived.frame.note.data(), note);
  receive_piece(receiving, receiving.arrived.frame.values.data(), floats);
  return next_frame();
}

void MpiWire::close() {
  for (auto& slot : slots_) mpi_.cancel(slot->request);
  mpi_.end();
  closed_ = true;
}

}  // namespace pipewright::exec::mpi
