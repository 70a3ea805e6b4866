// The wire between processes that mpirun has started (docs/decisions/0010-mpi.md). MPI itself sits
// in libpipewright_mpi.so, which is loaded here: the command neither links it nor needs it.
//
// A frame that is small goes as one message into a receive that was posted before; of a large one
// the head goes so, and note and floats follow straight from and into their vectors.
//
// When MPI fails a request the wire is broken, and receive() says so once. It cannot tell whose
// message was lost, so it receives nothing more; it goes on sending, so that the other processes
// hear why the run ends.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/transports/process/mpi/module_api.h"
#include "exec/transports/process/wire.hpp"

namespace pipewright::exec::mpi {

/// The module, loaded. Throws MachineError if there is none or it cannot be loaded: says what to
/// install.
const pipewright_mpi& load_module();

/// Whether mpirun has started this process, and how many of them; 0: it has not.
int processes_of_launcher();
/// Which of the processes on its machine this one is, from 0; nullopt: the launcher does not say.
std::optional<int> local_process_of_launcher();

class MpiWire final : public Wire {
 public:
  /// Joins the job; once a process. Throws MachineError if MPI does not start. `mpi` outlives the
  /// wire; tests bring one of their own.
  explicit MpiWire(const pipewright_mpi& mpi = load_module());
  /// Without close(): leaves MPI as it is, for a job in which somebody is dead.
  ~MpiWire() override;
  MpiWire(const MpiWire&) = delete;
  MpiWire& operator=(const MpiWire&) = delete;

  int process() const override { return process_; }
  int processes() const override { return processes_; }
  void send(int to, Frame frame) override;
  std::optional<ArrivedFrame> receive() override;
  std::vector<std::uint64_t> take_sent() override;
  bool is_broken() const override { return !broken_.empty(); }
  bool is_at_rest() const override {
    return sending_.empty() && (receiving_.empty() || is_broken());
  }
  void close() override;

 private:
  // One message of Open MPI's shared memory that goes without a handshake holds almost 4 KiB
  // (measured: 4000 bytes do, 4096 do not).
  static constexpr std::size_t kSlotBytes = 3840;
  static constexpr std::size_t kSlots = 32;
  static constexpr int kHeads = 1, kBodies = 2;

  struct Slot {
    std::array<std::byte, kSlotBytes> bytes;
    void* request = nullptr;
  };
  struct Sending {
    Frame frame;
    std::vector<std::byte> head;
    std::vector<void*> requests;
  };
  struct Receiving {
    ArrivedFrame arrived;
    std::vector<void*> requests;
  };

  void break_down(const std::string& why);
  void post(Slot& slot);
  std::optional<ArrivedFrame> next_frame();
  void send_piece(Sending& sending, const void* data, std::size_t bytes, int to, int channel);
  void receive_piece(Receiving& receiving, void* data, std::size_t bytes);
  bool all_done(std::vector<void*>& requests);
  void progress_sends();

  const pipewright_mpi& mpi_;
  int process_ = 0, processes_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t next_slot_ = 0;  // messages of one sender fill the slots in this order
  std::list<Sending> sending_;
  std::list<Receiving> receiving_;
  std::vector<std::uint64_t> sent_;
  std::string broken_;  // why; empty: it is not
  bool has_said_so_ = false;
  bool closed_ = false;
};

}  // namespace pipewright::exec::mpi
