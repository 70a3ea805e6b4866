// What processes send one another: a head of fixed size, a note and floats. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"
#include "exec/base/packing.hpp"

namespace pipewright::exec::mpi {

enum class FrameKind : std::uint8_t {
  // Of a step; dropped by whoever is past it, kept by whoever has not begun it.
  Data,    // of a SEND
  Ready,   // the RECV that a SEND meets stands ready
  Credit,  // of a SEND: its message was received
  Member,  // of a collective stands ready
  // Of a run.
  Part,        // of a collective, named by the member's instruction
  Join,        // to process 0: this process has come to the next meeting
  AllJoined,   // from process 0: all have
  Probe,       // process 0 asks whether anything can still happen
  State,       // the answer
  Progress,    // how much has ended
  End,         // the run is ended, and why
  FinalState,  // to process 0: what the process saw before its rank left
  // Of the link.
  Hello,
  Ping,
  Pong,
  Alive,    // a sign of life
  Witness,  // asks to be shown when the receiver ends (exec/transports/process/witness.hpp)
  Failure,  // what the process was to do has failed, and why
  Bye,
};

inline bool is_of_step(FrameKind kind) { return kind <= FrameKind::Member; }
inline bool is_of_link(FrameKind kind) { return kind >= FrameKind::Hello; }
/// Something happens in a run because of it. The others only watch.
inline bool moves_run(FrameKind kind) { return kind <= FrameKind::AllJoined; }

struct FrameHead {
  FrameKind kind = FrameKind::Data;
  std::uint8_t took_credit = 0;   // Data: the SEND left and took credit of its edge
  std::uint8_t has_checksum = 0;  // `checksum` holds a checksum
  std::uint8_t unused = 0;
  std::uint32_t run = 0, epoch = 0;  // counted from 0 in every process alike
  InstructionId id = kNoInstruction;
  std::uint32_t note_bytes = 0;
  std::uint64_t floats = 0;
  std::int64_t time_ns = 0;    // Data: when it began to move, in the step
  std::uint64_t checksum = 0;  // of note and floats
  std::uint64_t a = 0, b = 0;  // Probe, State, Ping, Pong: see where they are sent
};
static_assert(sizeof(FrameHead) == 64);

inline constexpr std::uint64_t kNoToken = ~std::uint64_t{0};

struct Frame {
  FrameHead head;
  PackedBytes note;
  std::vector<float> values;
  /// Wire::take_sent() tells it when the frame is out of our hands; kNoToken: nobody asks.
  std::uint64_t token = kNoToken;
};

struct ArrivedFrame {
  int from = 0;  // the process
  Frame frame;
};

}  // namespace pipewright::exec::mpi
