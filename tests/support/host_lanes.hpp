// The threads that share a row, or a tile of columns, one after another on the host: the texts of
// exec/devices/cuda/ that a GPU's threads run, with their order of sums.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "exec/devices/cuda/column_tiles.hpp"
#include "exec/devices/cuda/held_rows.hpp"
#include "exec/devices/cuda/rows.hpp"

namespace pipewright::tests {

/// All lanes at once, as a warp's threads shift down.
template <class Combine>
float combined_in_halves(float* parts, std::size_t n, Combine combine) {
  for (std::size_t half = n / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane)
      parts[lane] = combine(parts[lane], parts[lane + half]);
  }
  return parts[0];
}

/// The lanes of a row one after another; their parts are combined within each warp, then the
/// warps'.
template <int lanes, int warp, bool packed>
struct HostLanes {
  template <class F, class To, class... Arrays>
  void map(int n, F f, To* to, const Arrays*... arrays) const {
    for (int lane = 0; lane < lanes; ++lane)
      exec::cuda::lane_map<lanes, packed>(lane, n, f, to, arrays...);
  }
  template <class Combine, class Term, class... Arrays>
  float reduce(int n, float start, Combine combine, Term term, const Arrays*... arrays) const {
    return together(combine, [&](int lane) {
      return exec::cuda::lane_part<lanes, packed>(lane, n, start, combine, term, arrays...);
    });
  }
  template <class Combine, class Term>
  float reduce_places(int n, float start, Combine combine, Term term) const {
    return together(combine, [&](int lane) {
      return exec::cuda::lane_places<lanes>(lane, n, start, combine, term);
    });
  }
  template <class F>
  void each_place(int n, F f) const {
    for (int j = 0; j < n; ++j) f(j);
  }
  template <class Combine, class PartOfLane>
  static float together(Combine combine, PartOfLane part_of) {
    std::array<float, lanes> parts{};
    for (int lane = 0; lane < lanes; ++lane) parts[static_cast<unsigned>(lane)] = part_of(lane);
    std::array<float, lanes / warp> of_warps{};
    for (unsigned w = 0; w < of_warps.size(); ++w)
      of_warps[w] = combined_in_halves(&parts[w * warp], warp, combine);
    return combined_in_halves(of_warps.data(), of_warps.size(), combine);
  }
  template <class T>
  const T* hold(int, const T* row) const {
    return row;
  }
  template <class Term, class... Arrays>
  float sum(int n, Term term, const Arrays*... arrays) const {
    return reduce(n, 0.0F, exec::cuda::Plus{}, term, arrays...);
  }
  template <class F>
  void first(F f) const {
    f();
  }
  void sync() const {}
};

/// Threads that keep a row in registers, one after another: what is held is all of theirs.
template <int packs>
struct HoldingHostLanes {
  int lanes;

  template <class T>
  std::vector<exec::cuda::HeldPacks<T, packs>> hold(int n, const T* row) const {
    std::vector<exec::cuda::HeldPacks<T, packs>> all;
    for (int lane = 0; lane < lanes; ++lane)
      all.push_back(exec::cuda::held_packs<packs>(lane, lanes, n, row));
    return all;
  }
  template <class Term, class... Rows>
  float sum(int n, Term term, const Rows&... rows) const {
    std::vector<float> of_warps;
    for (int first = 0; first < lanes; first += exec::cuda::kWarp) {
      std::array<float, exec::cuda::kWarp> parts{};
      for (int lane = 0; lane < exec::cuda::kWarp; ++lane) {
        parts[static_cast<unsigned>(lane)] =
            exec::cuda::held_part<packs>(first + lane, lanes, n, term, of(rows, first + lane)...);
      }
      of_warps.push_back(in_halves(parts.data(), parts.size()));
    }
    return in_halves(of_warps.data(), of_warps.size());
  }
  template <class F, class To, class... Rows>
  void map(int n, F f, To* to, const Rows&... rows) const {
    for (int lane = 0; lane < lanes; ++lane)
      exec::cuda::held_map<packs>(lane, lanes, n, f, to, of(rows, lane)...);
  }
  template <class F>
  void first(F f) const {
    f();
  }

 private:
  static float in_halves(float* parts, std::size_t n) {
    return combined_in_halves(parts, n, exec::cuda::Plus{});
  }
  template <class T>
  static const T* of(const T* array, int) {
    return array;
  }
  template <class T>
  static const T& of(const std::vector<T>& held, int lane) {
    return held[static_cast<std::size_t>(lane)];
  }
};

/// The blocks of a sum of columns, and the threads of each, phase by phase.
template <class F>
void add_columns(const F& f) {
  typename F::Shared shared;
  for (std::size_t part = 0; part < f.parts; ++part) {
    for (std::size_t tile = 0; tile < exec::cuda::column_tiles_of(f.width); ++tile) {
      for (int t = 0; t < exec::cuda::kTileThreads; ++t) f.add(tile, part, t, shared);
      for (int t = 0; t < exec::cuda::kTileThreads; ++t) f.total(tile, part, t, shared);
    }
  }
}

}  // namespace pipewright::tests
