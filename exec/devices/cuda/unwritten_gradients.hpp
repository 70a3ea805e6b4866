// Gradients that hold nothing yet, because a step has just begun: whoever adds to one for the first
// time writes it instead, so nobody has to clear them. Not in exact numerics. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

namespace pipewright::exec::cuda {

class UnwrittenGradients {
 public:
  struct Array {
    float* at = nullptr;
    std::size_t size = 0;
  };

  void add(const Array& gradient) { sizes_[gradient.at] = gradient.size; }
  /// The one that `to` lies in, which is none any more. {}: there is none.
  Array take(const float* to) {
    auto found = sizes_.upper_bound(const_cast<float*>(to));
    if (found == sizes_.begin()) return {};
    found = std::prev(found);
    const Array array{found->first, found->second};
    if (to >= array.at + array.size) return {};
    sizes_.erase(found);
    return array;
  }
  /// Calls with(array) for each that is left; afterwards there is none.
  void take_all(const std::function<void(const Array&)>& with) {
    for (const auto& [at, size] : std::exchange(sizes_, {})) with({at, size});
  }

 private:
  std::map<float*, std::size_t> sizes_;
};

}  // namespace pipewright::exec::cuda
