// Examples for each reader, and a seeded sample of damage to them: it takes or refuses each.
// PIPEWRIGHT_FUZZ_ROUNDS=10000 damages each file more often.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/readers.hpp"

namespace pipewright::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> corpus_of(const Reader& reader) {
  std::vector<fs::path> paths;
  const fs::path folder = fs::path(PIPEWRIGHT_SOURCE_DIR) / "tests/fuzz/corpus" / reader.name;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

/// Bits, pieces of another file of the corpus, and cuts.
std::string damaged(std::string text, const std::string& other, std::mt19937& random) {
  const auto below = [&](std::size_t end) { return end == 0 ? 0 : random() % end; };
  for (std::size_t k = 1 + below(3); k > 0; --k) {
    const std::size_t at = below(text.size() + 1);
    switch (below(4)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1U << below(8)));
        break;
      case 1:
        text.erase(at, below(16));
        break;
      case 2:
        text.insert(at, other.substr(below(other.size()), below(32)));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

class Corpus : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Corpus, IsReadOrRefused) {
  const Reader& reader = readers()[GetParam()];
  const std::vector<std::string> texts = corpus_of(reader);
  ASSERT_FALSE(texts.empty()) << "tests/fuzz/corpus/" << reader.name;
  const char* wanted = std::getenv("PIPEWRIGHT_FUZZ_ROUNDS");
  const int rounds = wanted == nullptr ? 50 : std::atoi(wanted);
  std::mt19937 random(17);
  std::size_t accepted = 0;
  for (const std::string& text : texts) {
    EXPECT_NO_THROW(accepted += accepts(reader, text) ? 1 : 0) << text;
    for (int round = 0; round < rounds; ++round) {
      const std::string other = damaged(text, texts[random() % texts.size()], random);
      EXPECT_NO_THROW(accepts(reader, other)) << other;
    }
  }
  EXPECT_GT(accepted, 0U) << "the corpus has nothing that is right";
}

INSTANTIATE_TEST_SUITE_P(Readers, Corpus, ::testing::Range(std::size_t{0}, readers().size()),
                         [](const auto& each) { return readers()[each.param].name; });

}  // namespace
}  // namespace pipewright::test
