// The numbers of a tensor, from the ways in which a file may hold them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/little_endian.hpp"
#include "core/onnx/model.hpp"

namespace pipewright::onnx {
namespace {

std::size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::Bool:
    case DataType::Uint8:
    case DataType::Int8:
      return 1;
    case DataType::Int16:
    case DataType::Float16:
    case DataType::Bfloat16:
      return 2;
    case DataType::Float:
    case DataType::Int32:
      return 4;
    case DataType::Double:
    case DataType::Int64:
      return 8;
    default:
      return 0;
  }
}

double half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023, sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent < 31) return sign * std::ldexp(1024 + fraction, exponent - 25);
  return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::quiet_NaN();
}

/// Of an element's bits, little endian.
double number(DataType type, std::uint64_t bits) {
  switch (type) {
    case DataType::Float:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case DataType::Double:
      return std::bit_cast<double>(bits);
    case DataType::Float16:
      return half(static_cast<std::uint16_t>(bits));
    case DataType::Bfloat16:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits << 16)));
    case DataType::Int8:
      return static_cast<std::int8_t>(bits);
    case DataType::Int16:
      return static_cast<std::int16_t>(bits);
    case DataType::Int32:
      return static_cast<std::int32_t>(bits);
    case DataType::Int64:
      return static_cast<double>(static_cast<std::int64_t>(bits));
    default:
      return static_cast<double>(bits & 0xff);
  }
}

std::vector<double> numbers(std::string_view raw, DataType type, std::size_t count) {
  std::vector<double> values;
  values.reserve(count);
  const std::size_t size = bytes_of(type);
  for (std::size_t at = 0; at < count; ++at) {
    values.push_back(number(type, little_endian(raw.substr(at * size, size))));
  }
  return values;
}

class Reading {
 public:
  Reading(const TensorData& tensor, const std::string& file) : tensor_(tensor), file_(file) {}

  std::vector<double> values(const std::filesystem::path& folder) const {
    const std::size_t size = bytes_of(tensor_.type);
    if (size == 0) {
      fail("is of data type " + std::to_string(static_cast<int>(tensor_.type)) +
           ", which is not read here");
    }
    const std::int64_t elements = tensor_.elements();
    if (elements > kMostTensorElements) fail("has more elements than are read here");
    const auto count = static_cast<std::size_t>(elements);
    if (tensor_.external) {
      const std::string bytes = external_bytes(folder, count * size);
      return numbers(bytes, tensor_.type, count);
    }
    if (!tensor_.raw.empty() || count == 0) {
      if (tensor_.raw.size() != count * size) has_other(tensor_.raw.size(), "bytes", count * size);
      return numbers(tensor_.raw, tensor_.type, count);
    }
    return typed(count);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(file_, "", "tensor \"" + tensor_.name + "\" " + why);
  }
  [[noreturn]] void has_other(std::size_t found, const std::string& what,
                              std::size_t expected) const {
    fail("has " + std::to_string(found) + " " + what + ", and by its shape and type " +
         std::to_string(expected));
  }

  std::vector<double> typed(std::size_t count) const {
    std::vector<double> values(tensor_.doubles.begin(), tensor_.doubles.end());
    values.insert(values.end(), tensor_.floats.begin(), tensor_.floats.end());
    const bool is_bits = tensor_.type == DataType::Float16 || tensor_.type == DataType::Bfloat16;
    for (const std::int64_t value : tensor_.integers) {
      values.push_back(is_bits ? number(tensor_.type, static_cast<std::uint64_t>(value) & 0xffff)
                               : static_cast<double>(value));
    }
    if (values.size() != count) has_other(values.size(), "elements", count);
    return values;
  }

  /// A file beside the model, and nowhere else.
  std::string external_bytes(const std::filesystem::path& folder, std::size_t size) const {
    const ExternalData& data = *tensor_.external;
    const std::filesystem::path place(data.location);
    const bool leaves =
        place.is_absolute() || std::find(place.begin(), place.end(), "..") != place.end();
    if (data.location.empty() || leaves) {
      fail("has its values in \"" + data.location + "\", expected a file beside the model");
    }
    if (data.length && *data.length != static_cast<std::int64_t>(size)) {
      has_other(static_cast<std::size_t>(*data.length), "bytes", size);
    }
    std::error_code failure;
    const auto there = std::filesystem::file_size(folder / place, failure);
    if (failure) fail("has its values in " + data.location + ": " + failure.message());
    if (static_cast<std::uintmax_t>(data.offset) + size > there) {
      fail("has its values in " + data.location + " up to byte " +
           std::to_string(data.offset + static_cast<std::int64_t>(size)) + ", which has " +
           std::to_string(there));
    }
    std::ifstream stream(folder / place, std::ios::binary);
    stream.seekg(data.offset);
    std::string bytes(size, '\0');
    stream.read(bytes.data(), static_cast<std::streamsize>(size));
    if (!stream) fail("has its values in " + data.location + ", which cannot be read");
    return bytes;
  }

  const TensorData& tensor_;
  const std::string& file_;
};

}  // namespace

std::vector<double> values_of(const TensorData& tensor, const std::filesystem::path& folder,
                              const std::string& file) {
  return Reading(tensor, file).values(folder);
}

}  // namespace pipewright::onnx
