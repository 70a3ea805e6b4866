// Draws of what random jobs are made of: the same for a seed on every machine.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>
#include <type_traits>

namespace pipewright::test {

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : engine_(seed) {}
  /// From 0 to end - 1.
  int below(int end) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(end)); }
  bool coin() { return below(2) == 0; }
  template <class... Values>
  auto one_of(Values... values) {
    const std::common_type_t<Values...> list[] = {values...};
    return list[below(sizeof...(values))];
  }

 private:
  std::mt19937 engine_;
};

}  // namespace pipewright::test
