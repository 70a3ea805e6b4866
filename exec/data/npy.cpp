#include "exec/data/npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/text_file.hpp"
#include "exec/data/npy_header.hpp"

namespace pipewright::exec {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the elements are copied as they lie in the file");

/// Calls use(T()) with the type of an element.
template <class Use>
auto with_type(NpyType type, Use use) {
  switch (type) {
    case NpyType::Float32:
      return use(float());
    case NpyType::Float64:
      return use(double());
    case NpyType::Int32:
      return use(std::int32_t());
    case NpyType::Int64:
      return use(std::int64_t());
    case NpyType::UInt8:
      return use(std::uint8_t());
  }
  throw Bug("an array has no type");
}

/// Elements lie in the file at any address, so each is copied out.
template <class T>
T element(const NpyArray& array, std::int64_t at) {
  T value;
  std::memcpy(&value, array.data.data() + static_cast<std::size_t>(at) * sizeof(T), sizeof(T));
  return value;
}

template <class To>
std::vector<To> converted(const NpyArray& array, std::int64_t first, std::int64_t count) {
  PIPEWRIGHT_ASSERT(0 <= first && 0 <= count && first + count <= array.elements(),
                    "elements outside of an array");
  std::vector<To> result(static_cast<std::size_t>(count));
  with_type(array.type, [&]<class From>(From) {
    for (std::int64_t i = 0; i < count; ++i) {
      result[static_cast<std::size_t>(i)] = static_cast<To>(element<From>(array, first + i));
    }
  });
  return result;
}

template <class T>
std::string file_bytes(std::string_view type, const std::vector<std::int64_t>& shape,
                       std::span<const T> elements) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  PIPEWRIGHT_ASSERT(product == static_cast<std::int64_t>(elements.size()),
                    "an array's shape is not that of its elements");
  std::string bytes = npy_header(type, shape);
  bytes.append(reinterpret_cast<const char*>(elements.data()), elements.size_bytes());
  return bytes;
}

}  // namespace

std::int64_t NpyArray::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::int64_t NpyArray::elements_per_entry() const {
  std::int64_t product = 1;
  for (std::size_t d = 1; d < shape.size(); ++d) product *= shape[d];
  return product;
}

std::string_view to_string(NpyType type) {
  constexpr std::array<std::string_view, 5> kNames{"float32", "float64", "int32", "int64", "uint8"};
  return kNames[static_cast<std::size_t>(type)];
}

std::size_t bytes_of(NpyType type) {
  return with_type(type, [](auto one) { return sizeof(one); });
}

NpyArray parse_npy(std::string_view bytes, const std::string& file) {
  NpyArray array;
  const std::size_t begin = read_npy_header(bytes, file, array);
  const std::size_t there = bytes.size() - begin;
  const std::size_t needed = static_cast<std::size_t>(array.elements()) * bytes_of(array.type);
  if (there != needed) {
    throw InputError(file, "",
                     "its header promises " + std::to_string(needed) + " bytes of elements, but " +
                         std::to_string(there) + " follow; save the array again");
  }
  array.data = bytes.substr(begin);
  return array;
}

NpyArray read_npy(const std::string& path) { return parse_npy(read_data(path), path); }

std::vector<float> floats_of(const NpyArray& array, std::int64_t first, std::int64_t count) {
  return converted<float>(array, first, count);
}

std::vector<std::int32_t> integers_of(const NpyArray& array, std::int64_t first,
                                      std::int64_t count) {
  PIPEWRIGHT_ASSERT(array.is_whole_numbers(), "whole numbers asked of an array of fractions");
  return converted<std::int32_t>(array, first, count);
}

IntegerRange integer_range(const NpyArray& array) {
  PIPEWRIGHT_ASSERT(array.is_whole_numbers(), "whole numbers asked of an array of fractions");
  const std::int64_t count = array.elements();
  if (count == 0) return {};
  IntegerRange range{std::numeric_limits<std::int64_t>::max(),
                     std::numeric_limits<std::int64_t>::min()};
  with_type(array.type, [&]<class T>(T) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<std::int64_t>(element<T>(array, i));
      range = {std::min(range.least, value), std::max(range.most, value)};
    }
  });
  return range;
}

std::string npy_bytes(const std::vector<std::int64_t>& shape, std::span<const float> elements) {
  return file_bytes("<f4", shape, elements);
}

std::string npy_bytes(const std::vector<std::int64_t>& shape,
                      std::span<const std::int32_t> elements) {
  return file_bytes("<i4", shape, elements);
}

void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               std::span<const float> elements) {
  write_file(path, npy_bytes(shape, elements));
}

void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               std::span<const std::int32_t> elements) {
  write_file(path, npy_bytes(shape, elements));
}

}  // namespace pipewright::exec
