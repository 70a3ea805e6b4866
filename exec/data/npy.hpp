// NumPy's .npy files: one array with its type and shape, read and written without Python. The
// format is that of NumPy's documentation (numpy.lib.format, versions 1.0 to 3.0); of it, what
// training data is made of: float32, float64, int32, int64 and uint8, little endian, C order.
// Everything else is refused with a sentence that says how to convert it.
//
// Plain data and pure functions; any number of threads may call them. InputError names the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::exec {

enum class NpyType : std::uint8_t { Float32, Float64, Int32, Int64, UInt8 };

struct NpyArray {
  NpyType type = NpyType::Float32;
  std::vector<std::int64_t> shape;  // empty: a single number
  std::string data;                 // the elements as they stand in the file

  std::int64_t elements() const;
  /// Elements of one entry along the first dimension; shape may not be empty.
  std::int64_t elements_per_entry() const;
  bool is_whole_numbers() const { return type != NpyType::Float32 && type != NpyType::Float64; }
};

std::string_view to_string(NpyType type);  // "float32"
std::size_t bytes_of(NpyType type);

/// `bytes` is a whole file; `file` names it in errors. Throws InputError.
NpyArray parse_npy(std::string_view bytes, const std::string& file);
NpyArray read_npy(const std::string& path);

/// `count` elements from `first` on, converted one by one: to the nearest float, or to 32 bits,
/// which must hold them (the caller has looked, with integer_range()).
std::vector<float> floats_of(const NpyArray& array, std::int64_t first, std::int64_t count);
std::vector<std::int32_t> integers_of(const NpyArray& array, std::int64_t first,
                                      std::int64_t count);

/// Smallest and largest of an array of whole numbers; {0, 0} of an empty one.
struct IntegerRange {
  std::int64_t least = 0, most = 0;
};
IntegerRange integer_range(const NpyArray& array);

/// A file's bytes: version 1.0, data from a multiple of 64 on. The product of the shape is the
/// number of elements; another is a Bug.
std::string npy_bytes(const std::vector<std::int64_t>& shape, std::span<const float> elements);
std::string npy_bytes(const std::vector<std::int64_t>& shape,
                      std::span<const std::int32_t> elements);
/// Whole or not at all, as core/base/json.hpp's write_file() does. Throws MachineError.
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               std::span<const float> elements);
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               std::span<const std::int32_t> elements);

}  // namespace pipewright::exec
