#include "exec/training/gradient_part.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace {

class Writer {
 public:
  void number(std::size_t value) {
    const auto word = static_cast<std::uint64_t>(value);
    raw(&word, sizeof word);
  }
  template <class Array>
  void array(const Array& values) {
    number(values.size());
    raw(values.data(), values.size() * sizeof(values[0]));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void raw(const void* from, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + size);
  }

  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// At most `most`: a damaged count must not ask for all memory there is.
  std::size_t number(std::size_t most) {
    std::uint64_t word = 0;
    raw(&word, sizeof word);
    if (word > most) refuse();
    return static_cast<std::size_t>(word);
  }
  template <class Array>
  Array array() {
    constexpr std::size_t kSize = sizeof(typename Array::value_type);
    const std::size_t size = number(bytes_.size() / kSize);
    Array values(size);
    raw(values.data(), size * kSize);
    return values;
  }
  std::size_t left() const { return bytes_.size(); }
  [[noreturn]] static void refuse() { throw RunError("a replica's gradients arrived damaged"); }

 private:
  void raw(void* to, std::size_t size) {
    if (bytes_.size() < size) refuse();
    if (size > 0) std::memcpy(to, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }

  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> to_bytes(const GradientPart& part) {
  Writer writer;
  writer.number(static_cast<std::size_t>(part.micro_batches));
  writer.number(part.gradients.size());
  for (const AlignedFloats& one : part.gradients) writer.array(one);
  writer.number(part.sums.size());
  for (const FixedPointSums& one : part.sums) {
    writer.array(one.high());
    writer.array(one.low());
  }
  return writer.take();
}

GradientPart gradient_part_of(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  GradientPart part;
  part.micro_batches = static_cast<int>(reader.number(std::numeric_limits<int>::max()));
  for (std::size_t n = reader.number(bytes.size()); n > 0; --n)
    part.gradients.push_back(reader.array<AlignedFloats>());
  for (std::size_t n = reader.number(bytes.size()); n > 0; --n) {
    auto high = reader.array<FixedPointSums::Words>();
    auto low = reader.array<FixedPointSums::Words>();
    if (high.size() != low.size()) Reader::refuse();
    part.sums.emplace_back(std::move(high), std::move(low));
  }
  if (reader.left() > 0) Reader::refuse();
  return part;
}

}  // namespace pipewright::exec
