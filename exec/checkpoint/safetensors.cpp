#include "exec/checkpoint/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <fstream>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/little_endian.hpp"

namespace pipewright::exec {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "a file holds the floats as they lie");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr const char* kMetadataKey = "__metadata__";
constexpr std::size_t kFirstTensorAlignment = 8;  // of the first tensor in the file

/// Bits of an element, by the names of the format.
constexpr std::pair<std::string_view, int> kSafeTypes[] = {
    {"F64", 64}, {"F32", 32}, {"F16", 16},    {"BF16", 16},   {"I64", 64},   {"I32", 32},
    {"I16", 16}, {"I8", 8},   {"U64", 64},    {"U32", 32},    {"U16", 16},   {"U8", 8},
    {"BOOL", 8}, {"C64", 64}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}};

int element_bits(const JsonCursor& type) {
  const std::string name = type.string();
  const auto known = std::ranges::find(kSafeTypes, name, &std::pair<std::string_view, int>::first);
  if (known == std::end(kSafeTypes)) type.fail("a type of the safetensors format, such as F32");
  return known->second;
}

/// The product of the extents, at most kMostBytes.
std::int64_t elements_in(const std::vector<std::int64_t>& shape) {
  if (std::ranges::count(shape, 0) != 0) return 0;
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape)
    elements = elements > kMostBytes / extent ? kMostBytes : elements * extent;
  return elements;
}

SafeTensor read_tensor(const std::string& name, const JsonCursor& value, std::int64_t data_bytes,
                       std::int64_t data_at) {
  value.only({"dtype", "shape", "data_offsets"});
  SafeTensor tensor;
  tensor.name = name;
  const int bits = element_bits(value.at("dtype"));
  tensor.type = value.at("dtype").string();
  for (const JsonCursor& extent : value.at("shape").elements())
    tensor.shape.push_back(extent.integer(0, kMostBytes));
  const JsonCursor offsets = value.at("data_offsets");
  const std::vector<JsonCursor> ends = offsets.elements();
  if (ends.size() != 2) offsets.fail("where the tensor begins and where it ends");
  const std::int64_t begin = ends[0].integer(0, data_bytes);
  tensor.first_byte = data_at + begin;
  tensor.bytes = ends[1].integer(begin, data_bytes) - begin;
  const std::int64_t needed = elements_in(tensor.shape);
  if (needed > kMostBytes / 8 || needed * bits / 8 != tensor.bytes)
    offsets.fail("as many bytes as the shape needs in " + tensor.type);
  return tensor;
}

void require_filled(const SafetensorsHeader& header, std::int64_t data_at, std::int64_t file_bytes,
                    const std::string& file) {
  std::int64_t next = data_at;
  for (const SafeTensor& tensor : header.tensors) {
    if (tensor.first_byte != next)
      throw InputError(file, "/" + tensor.name,
                       "the tensors do not follow one another without gap or overlap");
    next += tensor.bytes;
  }
  if (next != file_bytes)
    throw InputError(file, "",
                     "has " + std::to_string(file_bytes) + " bytes, but its tensors end at byte " +
                         std::to_string(next) + (next > file_bytes ? ": it is truncated" : ""));
}

/// Of the header, as its eight bytes say it.
std::int64_t header_bytes_of(std::string_view bytes, std::int64_t file_bytes,
                             const std::string& file) {
  const std::uint64_t length = little_endian(bytes.substr(0, kLengthBytes));
  if (static_cast<std::int64_t>(bytes.size()) < kLengthBytes ||
      length > static_cast<std::uint64_t>(kMostHeaderBytes) ||
      static_cast<std::int64_t>(length) > file_bytes - kLengthBytes)
    throw InputError(file, "",
                     "is no safetensors file, or a truncated one: its first eight bytes are not "
                     "the length of a header in it");
  return static_cast<std::int64_t>(length);
}

std::string safetensors_header(const std::vector<SafetensorsWriter::Array>& arrays,
                               const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::int64_t next = 0;
  for (const auto& array : arrays) {
    const std::int64_t begin = std::exchange(next, next + 4 * array.elements);
    PIPEWRIGHT_ASSERT(!header.contains(array.name), "two arrays have one name");
    const auto shape = array.shape.value_or(std::vector{array.elements});
    header[array.name] = {
        {"dtype", kSafeFloats}, {"shape", shape}, {"data_offsets", {begin, next}}};
  }
  std::string text = header.dump();
  text.append((kFirstTensorAlignment - text.size() % kFirstTensorAlignment) % kFirstTensorAlignment,
              ' ');
  std::string length;
  for (std::size_t i = 0; i < static_cast<std::size_t>(kLengthBytes); ++i)
    length += static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

}  // namespace

std::int64_t SafeTensor::elements() const { return elements_in(shape); }

const SafeTensor* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &SafeTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

SafetensorsHeader parse_safetensors(std::string_view bytes, std::int64_t file_bytes,
                                    const std::string& file) {
  const std::int64_t length = header_bytes_of(bytes, file_bytes, file);
  const std::int64_t data_at = kLengthBytes + length;
  const std::string_view text =
      bytes.substr(static_cast<std::size_t>(kLengthBytes), static_cast<std::size_t>(length));
  if (!text.starts_with('{'))
    throw InputError(file, "", "is no safetensors file: its header is no JSON object");
  const Json document = parse_json(text, file);
  SafetensorsHeader header;
  for (const auto& [name, value] : JsonCursor(document, file).members()) {
    if (name == kMetadataKey) {
      for (const auto& [key, word] : value.members()) header.metadata[key] = word.string();
    } else {
      header.tensors.push_back(read_tensor(name, value, file_bytes - data_at, data_at));
    }
  }
  std::ranges::stable_sort(header.tensors, {}, [](const SafeTensor& tensor) {
    return std::pair(tensor.first_byte, tensor.bytes);
  });
  require_filled(header, data_at, file_bytes, file);
  return header;
}

SafetensorsHeader read_safetensors(const fs::path& file) {
  std::error_code failure;
  const auto size = fs::file_size(file, failure);
  if (failure) throw InputError(file.string(), "", "cannot be read: " + failure.message());
  const auto file_bytes = static_cast<std::int64_t>(size);
  std::ifstream stream(file, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(std::min(kLengthBytes, file_bytes)), '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::int64_t length = header_bytes_of(bytes, file_bytes, file.string());
  bytes.resize(static_cast<std::size_t>(kLengthBytes + length));
  stream.read(bytes.data() + kLengthBytes, length);
  if (!stream) throw InputError(file.string(), "", "cannot be read");
  return parse_safetensors(bytes, file_bytes, file.string());
}

SafetensorsWriter::SafetensorsWriter(const fs::path& file, const std::vector<Array>& arrays,
                                     const std::map<std::string, std::string>& metadata)
    : name_(file.filename().string()),
      file_(file.has_parent_path() ? file.parent_path() : fs::path("."), name_, {}) {
  const std::string header = safetensors_header(arrays, metadata);
  bytes_ = static_cast<std::int64_t>(header.size());
  for (const Array& array : arrays) bytes_ += 4 * array.elements;
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(std::span<const float> values) { file_.write(std::as_bytes(values)); }

void SafetensorsWriter::finish() {
  PIPEWRIGHT_ASSERT(file_.size() == bytes_, "a safetensors file was not filled");
  file_.commit(name_);
}

}  // namespace pipewright::exec
