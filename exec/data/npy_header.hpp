// The header of a .npy file: magic bytes, version, length, and a Python dictionary of three keys
// as text. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exec/data/npy.hpp"

namespace pipewright::exec {

/// Fills the array's type and shape; returns where the elements begin. The number of elements in
/// bytes fits 62 bits. Throws InputError for whatever is not such a header.
std::size_t read_npy_header(std::string_view bytes, const std::string& file, NpyArray& array);

/// A header of version 1.0 that ends on a multiple of 64 bytes. `type` as NumPy writes it: "<f4".
std::string npy_header(std::string_view type, const std::vector<std::int64_t>& shape);

}  // namespace pipewright::exec
