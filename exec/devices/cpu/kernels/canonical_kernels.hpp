// The innermost part of the canonical matrix product: one tile of c, as wide and high as the
// instruction set has registers for. Each element of a tile is a chain of its own,
// c = fma(a_k, b_k, c) for k ascending, so every instruction set gives the same bits. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace pipewright::exec::cpu {

/// What a canonical product may be computed with. Scalar is std::fma: right everywhere, and slow
/// where the machine has no such instruction.
enum class Isa : std::uint8_t { Scalar, Avx2, Avx512 };

/// The ones that this machine has, the fastest last.
std::span<const Isa> available_isas();

/// Some rows of c, up to TileKernel::columns wide.
struct Tile {
  int depth = 0;             // of the chain
  const float* a = nullptr;  // [depth][rows], packed
  const float* b = nullptr;  // [depth][columns]; all TileKernel::columns are read
  int b_stride = 0;
  float* c = nullptr;
  int c_stride = 0;
  int columns = 0;         // of c that are wanted
  bool continues = false;  // the chain begins with c, not with 0
  float factor = 1;        // of the chain's end
};

/// The tiles of an instruction set.
struct TileKernel {
  int rows = 0, columns = 0;                     // of the largest tile
  void (*run)(int rows, const Tile&) = nullptr;  // 1 <= rows <= the largest
};
TileKernel tile_kernel(Isa isa);

}  // namespace pipewright::exec::cpu
