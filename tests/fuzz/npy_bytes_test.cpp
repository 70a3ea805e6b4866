// .npy files with random damage: whatever the bytes are, the reader returns an array that is what
// its shape says, or throws InputError. Seeds are fixed, so a failure repeats.
#include <gtest/gtest.h>

#include <random>

#include "core/base/error.hpp"
#include "exec/data/npy.hpp"

namespace pipewright::exec {
namespace {

constexpr int kIterations = 100'000;

std::string damaged(std::string bytes, std::mt19937_64& random) {
  static const std::vector<std::string> kTokens{"(",
                                                ")",
                                                ",",
                                                "'",
                                                "{",
                                                "}",
                                                ":",
                                                "0,",
                                                "-1",
                                                "<f8",
                                                "|u1",
                                                ">i4",
                                                "True",
                                                "shape",
                                                "\n",
                                                "99999999999999999999",
                                                std::string(1, '\0'),
                                                "\xff"};
  const auto below = [&](std::size_t end) { return end == 0 ? 0 : random() % end; };
  for (std::size_t times = 1 + below(3); times > 0; --times) {
    // Most of the damage goes where the reader looks hardest.
    const std::size_t at =
        below(below(4) == 0 ? bytes.size() + 1 : std::min<std::size_t>(bytes.size() + 1, 80));
    switch (below(5)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.erase(at, below(12));
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), below(12)));
        break;
      default:
        bytes.insert(at, kTokens[below(kTokens.size())]);
        break;
    }
  }
  return bytes;
}

TEST(NpyFuzz, DamagedFilesAreReadWholeOrRefused) {
  std::mt19937_64 random(20261121);
  const std::vector<float> elements(24, 1.5F);
  const std::string good = npy_bytes({2, 3, 4}, elements);
  int read = 0, refused = 0;
  for (int i = 0; i < kIterations; ++i) {
    const std::string bytes = damaged(good, random);
    try {
      const NpyArray array = parse_npy(bytes, "fuzz.npy");
      ASSERT_EQ(array.data.size(),
                static_cast<std::size_t>(array.elements()) * bytes_of(array.type));
      ASSERT_EQ(floats_of(array, 0, array.elements()).size(),
                static_cast<std::size_t>(array.elements()));
      ++read;
    } catch (const InputError&) {
      ++refused;
    }
  }
  // Both must happen often, or the damage tests nothing.
  EXPECT_GT(read, kIterations / 100);
  EXPECT_GT(refused, kIterations / 10);
}

}  // namespace
}  // namespace pipewright::exec
