#include "exec/transports/process/tcp/handshake.hpp"

#include <algorithm>

namespace pipewright::exec::tcp {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Block proof_for(std::string_view purpose, const Lock& lock, const Claim& claim,
                const Block& doors_challenge) {
  return proof_of(lock.key, purpose,
                  {bytes_of(lock.owner), bytes_of(claim.process), bytes_of(claim.processes),
                   claim.challenge, doors_challenge});
}

}  // namespace

Block knockers_proof(const Lock& lock, const Claim& claim, const Block& doors_challenge) {
  return proof_for("pipewright knocker", lock, claim, doors_challenge);
}

Block doors_proof(const Lock& lock, const Claim& claim, const Block& doors_challenge) {
  return proof_for("pipewright door", lock, claim, doors_challenge);
}

Block session_key(const Lock& lock, const Claim& claim, const Block& doors_challenge) {
  return proof_for("pipewright session", lock, claim, doors_challenge);
}

Block seal_of_bytes(const Block& session, Speaker speaker, std::span<const std::byte> bytes) {
  return proof_of(session, speaker == Speaker::Door ? "from door" : "from knocker", {bytes});
}

PackedBytes sealed(const Block& session, Speaker speaker, const PackedBytes& bytes) {
  Packer packer;
  packer.put_all(std::span<const std::byte>(bytes));
  packer.put<Block>(seal_of_bytes(session, speaker, bytes));
  return packer.take();
}

}  // namespace pipewright::exec::tcp
