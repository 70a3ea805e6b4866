// What is said at a door of the job, of process 0 at the rendezvous and of each process for the
// connections between them. The door greets with a challenge; who knocks answers it by a proof and
// a challenge of his own; the door answers that; then he sends his bytes, which may be none:
//
//   door      Greeting                  a stranger learns nothing from it
//   knocker   Claim                     of fixed size: nobody promises a length before his proof
//   door      Welcome                   the proof that it is no impostor's
//   knocker   sealed bytes              he is in
//
// Both proofs are over both challenges, the door's process and the knocker's, so that none is good
// for another door, another direction or another time. Numbers are those of the machine's memory:
// the processes are of one build.
#pragma once

#include <cstdint>

#include "exec/base/packing.hpp"
#include "exec/transports/process/tcp/proof.hpp"

namespace pipewright::exec::tcp {

inline constexpr std::uint64_t kMagic = 0x7069'7065'7772'0002;  // "pipewr", 2
/// Nobody of the job says more than this at a door.
inline constexpr std::uint64_t kMostSealedBytes = std::uint64_t{1} << 26U;

struct Greeting {
  std::uint64_t magic = kMagic;
  Block challenge{};
};

struct Claim {
  std::uint64_t magic = kMagic;
  std::uint32_t process = 0, processes = 0;
  Block challenge{}, proof{};
};

enum class Answer : std::uint64_t { Welcome = 1, WrongToken = 2 };

struct Welcome {
  Answer answer = Answer::Welcome;
  Block proof{};
};

/// What a door and those who belong in agree on.
struct Lock {
  Block key{};
  int owner = 0;  // the process whose door it is
};

/// `claim` without its proof.
Block knockers_proof(const Lock& lock, const Claim& claim, const Block& doors_challenge);
Block doors_proof(const Lock& lock, const Claim& claim, const Block& doors_challenge);
/// Seals what the two say afterwards.
Block session_key(const Lock& lock, const Claim& claim, const Block& doors_challenge);

enum class Speaker : std::uint8_t { Knocker, Door };
/// Their number, the bytes, and a proof of them. Not encrypted.
PackedBytes sealed(const Block& session, Speaker speaker, const PackedBytes& bytes);
Block seal_of_bytes(const Block& session, Speaker speaker, std::span<const std::byte> bytes);

}  // namespace pipewright::exec::tcp
