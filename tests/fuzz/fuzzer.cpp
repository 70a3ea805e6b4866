// One reader under libFuzzer: PIPEWRIGHT_READER names it, PIPEWRIGHT_FUZZ_SECONDS says after how
// many seconds of CPU time it ends. See scripts/fuzz.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>

#include "tests/fuzz/readers.hpp"

namespace {

const pipewright::test::Reader* chosen = nullptr;
double seconds = std::numeric_limits<double>::infinity();

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("PIPEWRIGHT_READER");
  for (const auto& reader : pipewright::test::readers()) {
    if (name != nullptr && reader.name == name) chosen = &reader;
  }
  if (const char* wanted = std::getenv("PIPEWRIGHT_FUZZ_SECONDS")) seconds = std::atof(wanted);
  if (chosen != nullptr) return 0;
  for (const auto& reader : pipewright::test::readers()) std::puts(reader.name.c_str());
  std::exit(name == nullptr ? 0 : 2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Whatever is thrown but a refusal ends the process, and libFuzzer keeps the bytes.
  pipewright::test::accepts(*chosen, {reinterpret_cast<const char*>(data), size});
  constexpr int kBetweenLooks = 64;
  static int runs = 0;
  static bool has_ended = false;
  if (++runs % kBetweenLooks != 0 || has_ended) return 0;
  has_ended = static_cast<double>(std::clock()) / CLOCKS_PER_SEC > seconds;
  if (has_ended) std::raise(SIGUSR1);  // libFuzzer ends in order
  return 0;
}
