// The part of the table that latent attention needs (exec/devices/cuda/kernel_table.hpp, which says
// what a Launcher is).
#pragma once

#include "exec/devices/cuda/latent_elements.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/table_arrays.hpp"

namespace pipewright::exec::cuda {

/// Sums over heads are long: fewer packs than that leave a large GPU idle.
inline constexpr std::size_t kEnoughSums = std::size_t{132} * 512;

template <class Launcher, class T>
void fill_latent(pipewright_cuda_kernels& k) {
  k.rotate_neighbours = [](void* s, int rows, int sequence, int heads, int head_width, int stride,
                           int head_stride, int back, const float* turns, void* x) {
    const std::size_t half = count(head_width / 2), row = count(stride), head = count(head_stride);
    const bool in_packs = begins_a_pack(x) && are_packs<T>({count(head_width), row, head});
    return Launcher::elements(s, count(rows, heads) * half,
                              RotateNeighbours<T>{count(sequence), count(heads), half, row, head,
                                                  back != 0, in_packs, turns, out<T>(x)});
  };
  k.join_keys = [](void* s, int rows, int heads, int plain, int rotary, int value,
                   const void* keys_values, const void* rotary_key, void* keys) {
    const JoinKeys<T> each{count(heads),
                           count(plain),
                           count(rotary),
                           count(value),
                           are_packs<T>({count(plain), count(rotary), count(value)}),
                           in<T>(keys_values),
                           in<T>(rotary_key),
                           out<T>(keys)};
    return Launcher::elements(s, count(rows, heads) * count(plain + rotary), each);
  };
  k.add_heads = [](void* s, int rows, int heads, int width, const void* by_head, void* y) {
    const AddHeads<T> each{count(rows), count(heads), count(width), in<T>(by_head), out<T>(y)};
    const std::size_t n = count(rows, width);
    return are_packs<T>({count(width)}) && n / kPackOf<T> >= kEnoughSums
               ? Launcher::elements(s, n, each)
               : Launcher::elements(s, n, OneByOne<AddHeads<T>>{each});
  };
}

}  // namespace pipewright::exec::cuda
