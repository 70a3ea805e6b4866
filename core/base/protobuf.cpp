#include "core/base/protobuf.hpp"

#include <bit>

#include "core/base/error.hpp"
#include "core/base/little_endian.hpp"

namespace pipewright {

void WireMessage::fail(const char* at, const std::string& why) const {
  throw InputError(file_.name, "byte " + std::to_string(at - file_.first), why);
}

std::string WireMessage::doubt() const { return "; is it " + std::string(file_.kind) + "?"; }

std::uint64_t WireMessage::varint(std::string_view& bytes) const {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) fail(bytes.data(), "ends in the middle of a number" + doubt());
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail(bytes.data(), "expected a number of at most ten bytes" + doubt());
}

std::uint64_t WireMessage::fixed(std::string_view& bytes, std::size_t size) const {
  if (bytes.size() < size) fail(bytes.data(), "ends in the middle of a number");
  const std::uint64_t value = little_endian(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return value;
}

std::optional<WireField> WireMessage::next() {
  if (left_.empty()) return std::nullopt;
  const char* at = left_.data();
  const std::uint64_t key = varint(left_);
  WireField field{.number = static_cast<std::uint32_t>(key >> 3)};
  if (key >> 3 == 0 || key >> 32 != 0) fail(at, "expected a field" + doubt());
  switch (key & 7) {
    case 0:
      field.value = varint(left_);
      return field;
    case 1:
      field.type = WireType::Fixed64;
      field.value = fixed(left_, 8);
      return field;
    case 2: {
      field.type = WireType::Delimited;
      const std::uint64_t size = varint(left_);
      if (size > left_.size()) {
        fail(at, "field " + std::to_string(field.number) + " has " + std::to_string(size) +
                     " bytes, and the message " + std::to_string(left_.size()) + " more");
      }
      field.bytes = left_.substr(0, static_cast<std::size_t>(size));
      left_.remove_prefix(static_cast<std::size_t>(size));
      return field;
    }
    case 5:
      field.type = WireType::Fixed32;
      field.value = fixed(left_, 4);
      return field;
    default:
      fail(at, "field " + std::to_string(field.number) + " is of no known kind" + doubt());
  }
}

void WireMessage::refuse(const WireField& field, std::string_view what) const {
  const char* at = field.type == WireType::Delimited ? field.bytes.data() : left_.data();
  fail(at, "field " + std::to_string(field.number) + ": expected " + std::string(what));
}

std::string_view WireMessage::bytes_of(const WireField& field, std::string_view what) const {
  if (field.type != WireType::Delimited) refuse(field, what);
  return field.bytes;
}

std::int64_t WireMessage::integer_of(const WireField& field, std::string_view what) const {
  if (field.type != WireType::Varint) refuse(field, what);
  return static_cast<std::int64_t>(field.value);
}

float WireMessage::float_of(const WireField& field, std::string_view what) const {
  if (field.type != WireType::Fixed32) refuse(field, what);
  return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
}

void WireMessage::add_integers(const WireField& field, std::string_view what,
                               std::vector<std::int64_t>& numbers) const {
  if (field.type != WireType::Delimited) {
    numbers.push_back(integer_of(field, what));
    return;
  }
  for (std::string_view packed = field.bytes; !packed.empty();) {
    numbers.push_back(static_cast<std::int64_t>(varint(packed)));
  }
}

void WireMessage::add_floats(const WireField& field, std::string_view what,
                             std::vector<float>& numbers) const {
  if (field.type != WireType::Delimited) {
    numbers.push_back(float_of(field, what));
    return;
  }
  for (std::string_view packed = field.bytes; !packed.empty();) {
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(fixed(packed, 4))));
  }
}

void WireMessage::add_doubles(const WireField& field, std::string_view what,
                              std::vector<double>& numbers) const {
  if (field.type == WireType::Fixed64) {
    numbers.push_back(std::bit_cast<double>(field.value));
    return;
  }
  for (std::string_view packed = bytes_of(field, what); !packed.empty();) {
    numbers.push_back(std::bit_cast<double>(fixed(packed, 8)));
  }
}

std::optional<WireMessage> WireStream::next() {
  std::string_view& left = messages_.left_;
  if (left.empty()) return std::nullopt;
  const char* at = left.data();
  const std::uint64_t size = messages_.varint(left);
  if (size > left.size()) {
    messages_.fail(at, "a message of " + std::to_string(size) + " bytes, and the file has " +
                           std::to_string(left.size()) + " more" + messages_.doubt());
  }
  const std::string_view bytes = left.substr(0, static_cast<std::size_t>(size));
  left.remove_prefix(bytes.size());
  return WireMessage(bytes, messages_.file_);
}

}  // namespace pipewright
