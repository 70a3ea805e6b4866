#include "exec/transports/process/tcp/proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <vector>

#include "core/base/error.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr int kStretches = 100'000;  // about 30 ms

unsigned char* letters_of(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

Block random_block() {
  Block block;
  if (RAND_bytes(letters_of(block.data()), static_cast<int>(block.size())) != 1)
    throw MachineError("the system gives no random numbers");
  return block;
}

Block key_of_token(std::string_view token) {
  constexpr std::string_view kSalt = "pipewright rendezvous";
  Block key;
  PIPEWRIGHT_ASSERT(PKCS5_PBKDF2_HMAC(token.data(), static_cast<int>(token.size()),
                                      reinterpret_cast<const unsigned char*>(kSalt.data()),
                                      static_cast<int>(kSalt.size()), kStretches, EVP_sha256(),
                                      static_cast<int>(key.size()), letters_of(key.data())) == 1,
                    "libcrypto has no PBKDF2");
  return key;
}

Block proof_of(const Block& key, std::string_view purpose,
               std::initializer_list<std::span<const std::byte>> parts) {
  const auto said = std::as_bytes(std::span(purpose));
  std::vector<std::byte> text(said.begin(), said.end());
  for (const auto part : parts) text.insert(text.end(), part.begin(), part.end());
  Block proof;
  unsigned int size = 0;
  PIPEWRIGHT_ASSERT(
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), letters_of(text.data()),
           text.size(), letters_of(proof.data()), &size) != nullptr &&
          size == proof.size(),
      "libcrypto has no HMAC-SHA256");
  return proof;
}

bool is_same(const Block& a, const Block& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hex_of(const Block& block) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : block) {
    const auto value = std::to_integer<unsigned>(byte);
    text += kDigits[value >> 4U];
    text += kDigits[value & 15U];
  }
  return text;
}

}  // namespace pipewright::exec::tcp
