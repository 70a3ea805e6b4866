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
  /// Whether what adds so many words to an array is the first to do so: then it writes them. An
  /// array of which it adds to a part is cleared on the queue. Takes it.
  template <class Queue>
  bool begins(float* gradient, std::size_t words, Queue& queue) {
    const Array array = take(gradient);
    if (array.at == nullptr) return false;
    if (array.at == gradient && array.size == words) return true;
    queue.clear(array.at, array.size * sizeof(float));
    return false;
  }
  /// Calls with(array) for each that is left; afterwards there is none.
  void take_all(const std::function<void(const Array&)>& with) {
    for (const auto& [at, size] : std::exchange(sizes_, {})) with({at, size});
  }

 private:
  std::map<float*, std::size_t> sizes_;
};

}  // namespace pipewright::exec::cuda
