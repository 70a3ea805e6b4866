// Integers for products and sums of nanoseconds or bytes that do not fit 64 bits.
#pragma once

namespace pipewright {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

}  // namespace pipewright
