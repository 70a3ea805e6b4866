// Buffers without content: counted handles that know how much is held (exec/base/buffer.hpp without
// the memory). One thread at a time; a meter outlives its handles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace pipewright::planner {

struct HoldMeter {
  std::int64_t live = 0, most = 0;

  void add(std::int64_t bytes) {
    live += bytes;
    most = std::max(most, live);
  }
};

/// Copies share what is held; the last one lets it go.
using Held = std::shared_ptr<const std::int64_t>;

inline Held hold(HoldMeter& meter, std::int64_t bytes) {
  meter.add(bytes);
  return {new std::int64_t(bytes), [&meter](const std::int64_t* size) {
            meter.live -= *size;
            delete size;
          }};
}
inline bool is_shared(const Held& held) { return held.use_count() > 1; }

/// What a layer keeps of a micro-batch, and the layers in it.
struct Kept {
  std::vector<Held> held;
  std::vector<Kept> inner;

  void let_go() {
    held.clear();
    for (Kept& one : inner) one.let_go();
  }
  Kept& of_inner(std::size_t place) {
    if (inner.size() <= place) inner.resize(place + 1);
    return inner[place];
  }
};

}  // namespace pipewright::planner
