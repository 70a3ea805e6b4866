// The part of the table that mixtures of experts need (exec/devices/cuda/kernel_table.hpp, which
// says what a Launcher is).
#pragma once

#include <algorithm>

#include "exec/devices/cuda/expert_elements.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/table_arrays.hpp"

namespace pipewright::exec::cuda {

inline RoutedBlocks routed_blocks(int rows, int top_k, int chunks, int experts,
                                  const std::int32_t* expert) {
  return {count(rows / chunks), count(chunks), count(top_k), count(experts), expert};
}

/// Arguments of a kernel are copied by whoever launches it, so nothing has to stay for the copy.
template <class Launcher>
int keep_pointers(void* s, std::size_t n, const void* const* values, void** to) {
  for (std::size_t i = 0; i < n; i += KeepPointers::kMost) {
    const std::size_t some = std::min(n - i, KeepPointers::kMost);
    KeepPointers kept{{}, to + i};
    std::copy_n(values + i, some, kept.values);
    if (const int failed = Launcher::elements(s, some, kept); failed != 0) return failed;
  }
  return 0;
}

/// The router's part, the same in all tables; half a warp has a row.
template <class Launcher>
void fill_routing(pipewright_cuda_kernels& k) {
  k.keep_pointers = keep_pointers<Launcher>;
  k.route = [](void* s, int rows, const pipewright_cuda_router* router, const float* logits,
               const float* bias, float* group_sums, float* weights, std::int32_t* expert) {
    return Launcher::rows(s, count(rows),
                          Route{*router, logits, bias, group_sums, weights, expert});
  };
  k.count_choices = [](void* s, int rows, int top_k, int chunks, int experts,
                       const std::int32_t* expert, std::int32_t* counts, int adds, float* sums) {
    const RoutedBlocks blocks = routed_blocks(rows, top_k, chunks, experts, expert);
    const int failed = Launcher::elements(s, blocks.elements(), CountInBlocks{blocks, counts});
    if (failed != 0) return failed;
    return Launcher::elements(s, count(chunks, experts),
                              CountInChunks{blocks, counts, adds != 0, sums});
  };
  k.balance = [](void* s, int experts, float rate, const float* counts, float* bias) {
    return Launcher::elements(s, count(experts), Balance{count(experts), rate, counts, bias});
  };
  k.place_rows = [](void* s, int rows, int top_k, int chunks, int experts, std::int64_t capacity,
                    const float* earlier, const std::int32_t* expert, std::int32_t* counts,
                    std::int32_t* begin, std::int32_t* place, std::int32_t* row) {
    const RoutedBlocks blocks = routed_blocks(rows, top_k, chunks, experts, expert);
    const RoomInChunks room{capacity, earlier, count(experts)};
    const std::size_t runs = count(chunks, experts);
    int failed = Launcher::elements(s, blocks.elements(), CountInBlocks{blocks, counts});
    if (failed == 0)
      failed = Launcher::elements(s, count(experts), CountBefore{blocks, room, counts, begin});
    if (failed == 0) failed = Launcher::elements(s, 1, RunsBegin{runs, begin});
    if (failed == 0) {
      failed = Launcher::elements(s, blocks.elements(),
                                  PlaceInBlocks{blocks, room, counts, begin, place, row});
    }
    if (failed != 0 || capacity < 0) return failed;
    return Launcher::elements(s, count(rows, top_k), NoRows{begin + runs, row});
  };
  k.route_backward = [](void* s, int rows, const pipewright_cuda_router* router, float balance,
                        float z, float all, const float* logits, const float* weights,
                        const std::int32_t* expert, const float* choices, const float* dweights,
                        float* dlogits) {
    return Launcher::rows(s, count(rows),
                          RouteBackward{*router, balance, z, all, logits, weights, expert, choices,
                                        dweights, dlogits});
  };
}

/// What goes through experts, and comes from them.
template <class Launcher, class Rows, class T>
void fill_routed_rows(pipewright_cuda_kernels& k) {
  k.router_bias = [](void* s, int rows, int width, const void* bias, float* y) {
    return Launcher::elements(s, count(rows, width), RouterBias<T>{count(width), in<T>(bias), y});
  };
  k.gather_rows = [](void* s, std::size_t places, int width, const std::int32_t* row, const void* x,
                     void* gathered) {
    return Launcher::elements(s, places * count(width),
                              GatherRows<T>{count(width), row, in<T>(x), out<T>(gathered)});
  };
  k.weigh_rows = [](void* s, int rows, int top_k, int width, const std::int32_t* place,
                    const float* weights, const void* z, void* y) {
    return Launcher::elements(
        s, count(rows, width),
        WeighRows<T>{count(width), count(top_k), place, weights, in<T>(z), out<T>(y)});
  };
  k.weigh_rows_backward = [](void* s, int rows, int top_k, int width, const std::int32_t* place,
                             const float* weights, const void* dy, const void* z, void* dz,
                             float* dweights) {
    return Rows::run(s, count(rows, top_k),
                     WeighRowsBackward<T>{width, top_k, place, weights, in<T>(dy), in<T>(z),
                                          out<T>(dz), dweights});
  };
  k.clear_behind = [](void* s, std::size_t places, int width, const std::int32_t* end, void* rows) {
    return Launcher::elements(s, places * count(width),
                              ClearBehind<T>{count(width), end, out<T>(rows)});
  };
}

}  // namespace pipewright::exec::cuda
