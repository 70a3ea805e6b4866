#include "tests/reference/collectives.hpp"

#include <algorithm>
#include <map>

namespace pipewright::reference {
namespace {

struct Fraction {
  Wide numerator = 0, denominator = 1;

  Fraction operator+(const Fraction& other) const {
    return {numerator * other.denominator + other.numerator * denominator,
            denominator * other.denominator};
  }
  bool operator<(const Fraction& other) const {
    return numerator * other.denominator < other.numerator * denominator;
  }
};

constexpr std::int64_t kSecond = 1'000'000'000;

/// Letters as the page has them.
struct Letters {
  std::int64_t n = 0, m = 0, g = 0, b = 0, r = 0;
};

Fraction whole(std::int64_t value) { return {value, 1}; }

Fraction steps(const CollectiveTerms& terms, std::int64_t inside, std::int64_t between) {
  return whole(inside * terms.step + between * terms.across_step);
}

/// x / y bytes at a rate.
Fraction moving(Wide x, std::int64_t y, std::int64_t rate) {
  return {x * kSecond, static_cast<Wide>(y) * rate};
}

std::vector<Fraction> ways(const CollectiveTerms& terms, const std::string& kind,
                           const Letters& l) {
  const Wide b = l.b;
  const bool several = l.m > 1;
  const std::int64_t rate = several
                                ? std::min(terms.bytes_per_second, terms.across_bytes_per_second)
                                : terms.bytes_per_second;
  if (kind == "ALL_TO_ALL") {
    const Fraction inside = moving((l.n - 1) * b, l.n, terms.bytes_per_second);
    const Fraction between =
        several ? moving(l.g * (l.n - l.g) * b, l.n, terms.across_bytes_per_second) : Fraction{};
    return {steps(terms, l.g - 1, l.n - l.g) + std::max(inside, between)};
  }
  if (kind == "RING_SEND")
    return {steps(terms, several ? 0 : 1, several ? 1 : 0) + moving(b, 1, rate)};
  const bool broadcast = kind == "BROADCAST";
  std::vector<Fraction> found;
  if (broadcast) {
    found.push_back(steps(terms, l.n - l.m, l.m - 1) + moving(b, 1, rate));
  } else {
    const std::int64_t k = l.r * (l.n - 1), crossing = several ? std::min(l.r * l.m, k) : 0;
    found.push_back(steps(terms, k - crossing, crossing) + moving(k * b, l.n, rate));
  }
  if (!several) return found;
  if (broadcast || kind == "ALL_REDUCE") {
    std::int64_t depth = 0;
    while ((std::int64_t{1} << depth) < l.m) ++depth;
    found.push_back(steps(terms, l.r * (l.g - 1), l.r * depth) + moving(l.r * b, 1, rate));
  }
  if (!broadcast && l.g > 1 && l.n == l.m * l.g) {
    found.push_back(steps(terms, l.r * (l.g - 1), l.r * (l.m - 1)) +
                    moving(l.r * (l.g - 1) * b, l.g, terms.bytes_per_second) +
                    moving(l.r * (l.m - 1) * b, l.m, terms.across_bytes_per_second));
  }
  return found;
}

}  // namespace

std::int64_t collective_price(const CollectiveTerms& terms, const std::string& kind,
                              const std::vector<int>& devices, std::int64_t bytes) {
  if (devices.size() < 2) return 0;
  std::map<int, std::int64_t> on_node;
  for (const int device : devices) ++on_node[terms.per_node > 0 ? device / terms.per_node : 0];
  Letters l{static_cast<std::int64_t>(devices.size()), static_cast<std::int64_t>(on_node.size()), 0,
            bytes, kind == "ALL_REDUCE" ? 2 : 1};
  for (const auto& [node, members] : on_node) l.g = std::max(l.g, members);
  const Fraction protocol =
      std::min(Fraction{static_cast<Wide>(terms.part) * bytes, kind == "RING_SEND" ? 1 : l.n},
               whole(terms.bulk));
  const std::vector<Fraction> all = ways(terms, kind, l);
  const Fraction price = whole(terms.launch) + protocol + *std::min_element(all.begin(), all.end());
  return static_cast<std::int64_t>((price.numerator + price.denominator - 1) / price.denominator);
}

}  // namespace pipewright::reference
