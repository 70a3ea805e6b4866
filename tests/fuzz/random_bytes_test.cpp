// Valid texts with random damage: whatever the bytes are, a parser returns or throws InputError.
// The seeds are fixed, so a failure repeats; the message holds the text that caused it.
#include <gtest/gtest.h>

#include <random>

#include "core/costs/cost_text.hpp"
#include "core/order/order.hpp"
#include "core/order/problems.hpp"
#include "tests/support/expect_refusal.hpp"
#include "tests/support/sample_documents.hpp"

namespace pipewright::test {
namespace {

constexpr int kIterations = 20'000;

class Damage {
 public:
  explicit Damage(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  std::string apply(std::string text) {
    const std::size_t times = 1 + below(4);
    for (std::size_t k = 0; k < times; ++k) {
      one(text);
    }
    return text;
  }

 private:
  void one(std::string& text) {
    static const std::vector<std::string> tokens = {"{",       "}",
                                                    "[",       "]",
                                                    ",",       ":",
                                                    "\"",      "-",
                                                    "0",       "9999999999",
                                                    "1e99",    "null",
                                                    "true",    "NaN",
                                                    "\xff",    "\\u0000",
                                                    "\\ud800", std::string(1, '\0'),
                                                    "\n",      "F",
                                                    "B",       "SEND_F",
                                                    "@",       ";",
                                                    "(",       ")OVERLAP_F_B",
                                                    "-1",      "ms",
                                                    "GiB"};
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(20);
    switch (below(6)) {
      case 0:
        if (!text.empty()) {
          text[below(text.size())] ^= static_cast<char>(1U << below(8));
        }
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size() + 1), length));
        break;
      default:
        text.insert(at, tokens[below(tokens.size())]);
        break;
    }
  }

  std::mt19937_64 random_;
};

/// Counts what became of a text; anything but an InputError is a failure.
template <class Parse>
bool survives(const std::string& text, Parse parse) {
  try {
    parse(text);
    return true;
  } catch (const InputError& error) {
    EXPECT_FALSE(std::string(error.what()).empty());
    return false;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw " << error.what() << "\nfor the text\n" << text;
    return false;
  }
}

TEST(RandomBytes, DocumentReaders) {
  struct Seed {
    std::string kind, text;
  };
  std::vector<Seed> seeds;
  for (const Sample& sample : sample_documents()) {
    seeds.push_back({sample.kind, sample.document.dump()});
  }
  Damage damage(20240607);
  int accepted = 0;
  for (int k = 0; k < kIterations; ++k) {
    const Seed& seed = seeds[static_cast<std::size_t>(k) % seeds.size()];
    const std::string text = damage.apply(seed.text);
    accepted += survives(text, [&](const std::string& t) { read_text_as(seed.kind, t); }) ? 1 : 0;
  }
  // Damage inside a name or a digit leaves some documents valid, most not.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kIterations / 2);
}

TEST(RandomBytes, OrdersAsCsv) {
  const std::string valid =
      "# group g: 0 1\n# parts 0F: a*3 ALL_REDUCE(tp:x:4x8:float32)\n# mesh tp=2 ep=4\n"
      "0F0,0F1,0SEND_F0,0RECV_B0,0I0,0W0,0B1\n1RECV_F0,1F0, 1B0 ,1SEND_B0,(1F1;1B1)OVERLAP_F_B\n";
  Damage damage(7);
  for (int k = 0; k < kIterations; ++k) {
    survives(damage.apply(valid),
             [](const std::string& text) { problems_of(read_order_csv(text, "sample.csv")); });
  }
}

TEST(RandomBytes, CostsMemoryAndUnits) {
  Damage damage(11);
  for (int k = 0; k < kIterations; ++k) {
    survives(damage.apply("F=1.5ms,I=2us,W=300,B=2.3ms,FB=3ms,OPT=0,comm=10us"),
             [](const std::string& text) { parse_costs(text, 4); });
    survives(damage.apply("F=1GiB,I=-300MiB,W=-724MiB,limit=80GB"), [](const std::string& text) {
      CostTable table = CostTable::uniform(2, {});
      parse_memory(text, table);
    });
    survives(damage.apply("100Gb/s"),
             [](const std::string& text) { parse_bandwidth(text, "link"); });
    survives(damage.apply("eager:4095B"), [](const std::string& text) { parse_protocol(text); });
  }
}

}  // namespace
}  // namespace pipewright::test
