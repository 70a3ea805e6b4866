// Random orders and policies through the library (core, sim) and through the slow interpreter of
// tests/reference/: the same lists, verdict, ends, figures, heads and cycle. A disagreement is cut
// down to a small case before it is shown.
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/property/two_readings.hpp"
#include "tests/reference/interpreter.hpp"
#include "tests/reference/random_order.hpp"

namespace pipewright::tests {
namespace differential_test {

/// Empty if they agree, else the first line on which they do not.
std::string disagreement(const Case& c) {
  if (reference::parse_order(reference::to_csv(c.order)).empty()) return "";
  if (c.fragment && contradicts_itself(c.order)) return "";
  if (loses_a_rank(c)) return "";
  std::string library;
  try {
    library = of_library(c);
  } catch (const std::exception& error) {
    library = std::string("threw: ") + error.what() + "\n";
  }
  std::istringstream ours(library), theirs(of_reference(c));
  for (std::string a, b;;) {
    const bool more_a = static_cast<bool>(std::getline(ours, a)),
               more_b = static_cast<bool>(std::getline(theirs, b));
    if (!more_a && !more_b) return "";
    if (!more_a) a = "(nothing)";
    if (!more_b) b = "(nothing)";
    if (a != b) return "library:   " + a + "\nreference: " + b + "\n";
  }
}

using Simplification = std::function<bool(Case&)>;  // false: does not apply

/// Cuts a case down while `fails` still holds.
Case smallest(Case c, const std::function<bool(const Case&)>& fails) {
  const std::vector<Simplification> simpler = {
      [](Case& x) {
        const bool was = x.fragment;
        x.fragment = true;
        return !was;
      },
      [](Case& x) {
        const bool was = !x.costs.kind_and_stage.empty();
        x.costs.kind_and_stage.clear();
        x.costs.kind["F"] = 1;
        return was;
      },
      [](Case& x) {
        const bool was = !x.costs.actions.empty();
        x.costs.actions.clear();
        return was;
      },
      [](Case& x) {
        const bool was = x.costs.bytes_per_second.has_value();
        x.costs.bytes_per_second.reset();
        return was;
      },
      [](Case& x) {
        const bool was = x.costs.latency != 0;
        x.costs.latency = 0;
        return was;
      },
      [](Case& x) {
        const bool was = x.policy.run_order == reference::RunOrder::EvenOdd;
        x.policy.run_order = {};
        return was;
      },
      [](Case& x) {
        const bool was = x.policy.first_use || x.policy.registered;
        x.policy.first_use = x.policy.registered = false;
        return was;
      },
      [](Case& x) {
        const bool was = x.policy.device_queues != 0;
        x.policy.device_queues = 0;
        return was;
      },
      [](Case& x) {
        const bool was = x.policy.in_flight != 0;
        x.policy.in_flight = 0;
        return was;
      },
      [](Case& x) {
        const bool was = x.policy.post != reference::Post::Early;
        x.policy.post = {};
        return was;
      },
      [](Case& x) {
        const bool was = x.policy.forward.credit != reference::Protocol::Credit::None;
        x.policy.forward = {};
        return was;
      },
      [](Case& x) {
        const bool was = x.policy.backward.credit != reference::Protocol::Credit::None;
        x.policy.backward = {};
        return was;
      }};
  for (bool cut = true; cut;) {
    cut = false;
    for (const Simplification& simplify : simpler) {
      Case tried = c;
      if (simplify(tried) && fails(tried)) c = tried, cut = true;
    }
    const reference::Parts lists = c.heading.parts;
    for (const auto& [of, list] : lists) {
      Case tried = c;
      tried.heading.parts.erase(of);
      if (fails(tried)) c = tried, cut = true;
    }
    for (std::size_t rank = 0; rank < c.order.size(); ++rank) {
      for (std::size_t i = 0; i < c.order[rank].size();) {
        Case tried = c;
        tried.order[rank].erase(tried.order[rank].begin() + static_cast<std::ptrdiff_t>(i));
        drop_idle_parts(tried);
        if (fails(tried))
          c = tried, cut = true;
        else
          ++i;
      }
    }
  }
  return c;
}

Case random_case(std::uint64_t seed) {
  reference::Dice dice(seed);
  const reference::RandomOrder random = reference::random_order(dice);
  Case c{random.order, reference::random_policy(dice), reference::random_costs(dice, random.order),
         false};
  c.fragment = random.broken ? dice.chance(70) : dice.chance(10);
  add_calls_to_some(dice, c);
  add_parts_to_some(reference::Dice(seed + 2'000'000'000), c);
  add_sharding_to_some(reference::Dice(seed + 3'000'000'000), c);
  return c;
}

/// PIPEWRIGHT_DIFFERENTIAL_SEEDS=from:to asks for others than the 4,000 of every run.
std::pair<std::uint64_t, std::uint64_t> seeds() {
  const char* wanted = std::getenv("PIPEWRIGHT_DIFFERENTIAL_SEEDS");
  if (wanted == nullptr) return {0, 4000};
  const std::string text = wanted;
  return {std::stoull(text), std::stoull(text.substr(text.find(':') + 1))};
}

TEST(Differential, LibraryAgreesWithReference) {
  const auto [from, to] = seeds();
  constexpr int kEnough = 5;
  int disagreements = 0;
  for (std::uint64_t seed = from; seed < to && disagreements < kEnough; ++seed) {
    const Case c = random_case(seed);
    if (disagreement(c).empty()) continue;
    ++disagreements;
    const Case small = smallest(c, [](const Case& x) { return !disagreement(x).empty(); });
    ADD_FAILURE() << "seed " << seed << "\n"
                  << shown(small) << disagreement(small) << "library:\n"
                  << of_library(small) << "reference:\n"
                  << of_reference(small);
  }
}

/// Verdict, heads and cycle: what section 7 says no duration can change.
std::string where_it_stands(const Case& c) {
  const reference::Result result =
      reference::interpret(c.order, c.policy, c.costs, c.fragment, c.heading);
  std::string text = to_string(result.verdict) + "\n";
  for (const reference::Head& head : result.stuck)
    text += std::to_string(head.rank) + " " + head.instruction + "\n";
  for (const reference::CycleElement& e : result.cycle)
    text += e.instruction + " waits for " + e.waits_for + " behind " + e.behind + "\n";
  for (const reference::Mismatch& m : result.mismatches) text += m.recv + " met " + m.send + "\n";
  return text;
}

std::string library_without_times(const Case& c) {
  std::istringstream answer(of_library(c));
  std::string text;
  for (std::string line; std::getline(answer, line);) {
    const std::string word = line.substr(0, line.find(' '));
    if (word == "verdict" || word == "head" || word == "cycle" || word == "met")
      text += line + "\n";
  }
  return text;
}

TEST(Differential, WhereItStandsDependsOnNoDuration) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const Case c = random_case(seed);
    if (c.fragment && contradicts_itself(c.order)) continue;
    Case other = c;
    reference::Dice dice(seed + 1'000'000);
    other.costs = seed % 2 == 0 ? reference::Costs{} : reference::random_costs(dice, c.order);
    other.costs.bytes = c.costs.bytes;  // sizes count against the credit, they are no durations
    if (reference::parse_order(reference::to_csv(c.order)).empty()) continue;
    EXPECT_EQ(where_it_stands(c), where_it_stands(other)) << "seed " << seed << "\n"
                                                          << shown(c) << shown(other);
    EXPECT_EQ(library_without_times(c), library_without_times(other)) << "seed " << seed << "\n"
                                                                      << shown(c) << shown(other);
  }
}

}  // namespace differential_test
}  // namespace pipewright::tests
