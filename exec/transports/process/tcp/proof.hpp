// Keys and proofs, by which a process shows that it knows the job's token without saying it.
// All of it is libcrypto's: HMAC-SHA256 (RFC 2104), PBKDF2 (RFC 8018), its random numbers and its
// comparison in constant time. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace pipewright::exec::tcp {

/// A key, a proof, or a challenge.
using Block = std::array<std::byte, 32>;

/// Throws MachineError if the system has no random numbers.
Block random_block();
/// Slow on purpose: who has heard a proof can try words of a dictionary, and each costs him this.
Block key_of_token(std::string_view token);
/// HMAC-SHA256 of the purpose and the parts one after another. All parts but the last have
/// lengths that the purpose fixes, or two texts would have one proof.
Block proof_of(const Block& key, std::string_view purpose,
               std::initializer_list<std::span<const std::byte>> parts);
/// Takes equally long wherever they differ.
bool is_same(const Block& a, const Block& b);
std::string hex_of(const Block& block);

}  // namespace pipewright::exec::tcp
