#include "exec/data/npy_header.hpp"

#include <array>

#include "core/base/error.hpp"

namespace pipewright::exec {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignmentOfData = 64;
constexpr std::size_t kMostDimensions = 32;  // as NumPy 1
constexpr std::int64_t kMostNpyElements = std::int64_t{1} << 58;

struct TypeName {
  std::string_view name;
  NpyType type;
};
constexpr std::array<TypeName, 6> kTypes{{{"<f4", NpyType::Float32},
                                          {"<f8", NpyType::Float64},
                                          {"<i4", NpyType::Int32},
                                          {"<i8", NpyType::Int64},
                                          {"|u1", NpyType::UInt8},
                                          {"<u1", NpyType::UInt8}}};

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

/// Reads the dictionary from left to right. Spaces may stand between its parts, as in Python.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  void read(NpyArray& array) {
    expect('{');
    while (!takes('}')) {
      const std::string key = quoted();
      expect(':');
      entry(key, array);
      if (takes('}')) break;
      expect(',');
    }
    skip_spaces();
    if (at_ != text_.size()) broken("nothing after the dictionary");
    if (!has_type_ || !has_order_ || !has_shape_) {
      broken("the keys 'descr', 'fortran_order' and 'shape'");
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw InputError(file_, "", message);
  }
  [[noreturn]] void broken(const std::string& expected) const {
    refuse("its header is not that of a .npy file: expected " + expected + " at character " +
           std::to_string(at_) + " of the dictionary; save the array again with numpy.save()");
  }

  void entry(const std::string& key, NpyArray& array) {
    if (key == "descr" && !has_type_) {
      has_type_ = true;
      array.type = type();
    } else if (key == "fortran_order" && !has_order_) {
      has_order_ = true;
      if (boolean()) {
        refuse("the array is stored column by column; save numpy.ascontiguousarray(a)");
      }
    } else if (key == "shape" && !has_shape_) {
      has_shape_ = true;
      array.shape = shape();
    } else {
      broken("each of 'descr', 'fortran_order' and 'shape' once");
    }
  }

  NpyType type() {
    skip_spaces();
    if (at_ < text_.size() && text_[at_] == '[') {
      refuse("the array has named fields; save one plain array a file");
    }
    const std::string name = quoted();
    for (const TypeName& known : kTypes) {
      if (known.name == name) return known.type;
    }
    refuse("its elements are of type '" + name +
           "'; float32, float64, int32, int64 and uint8 (little endian) can be read: convert with "
           "a.astype('float32') or a.astype('int32')");
  }

  bool boolean() {
    skip_spaces();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    broken("True or False");
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> sizes;
    std::int64_t product = 1;
    bool has_comma = true;
    expect('(');
    while (!takes(')')) {
      if (!has_comma) broken("a comma");
      const std::int64_t size = number();
      sizes.push_back(size);
      if (sizes.size() > kMostDimensions) broken("at most 32 dimensions");
      // Zero sizes do not excuse the others from staying in range.
      if (size > 0 && product > kMostNpyElements / size)
        broken("an array of less than 2^58 elements");
      product *= size > 0 ? size : 1;
      has_comma = takes(',');
    }
    if (sizes.size() == 1 && !has_comma) broken("a comma after the only size");
    return sizes;
  }

  std::int64_t number() {
    skip_spaces();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (value > kMostNpyElements) broken("an array of less than 2^58 elements");
      value = 10 * value + (text_[at_++] - '0');
    }
    if (at_ == begin) broken("a size");
    if (value > kMostNpyElements) broken("an array of less than 2^58 elements");
    return value;
  }

  std::string quoted() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') broken("a quoted word");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) broken("a closing quote");
    const std::string word(text_.substr(at_ + 1, end - at_ - 1));
    for (const char c : word) {
      if (c < ' ' || c > '~' || c == '\\') broken("a word of plain letters");
    }
    at_ = end + 1;
    return word;
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool takes(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!takes(c)) broken(std::string("'") + c + "'");
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  bool has_type_ = false, has_order_ = false, has_shape_ = false;
};

}  // namespace

std::size_t read_npy_header(std::string_view bytes, const std::string& file, NpyArray& array) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    throw InputError(file, "", "is not a .npy file; save an array with numpy.save()");
  }
  if (bytes.size() < kMagic.size() + 2) throw InputError(file, "", "ends within its header");
  const int major = static_cast<unsigned char>(bytes[6]),
            minor = static_cast<unsigned char>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw InputError(file, "",
                     "is a .npy file of version " + std::to_string(major) + "." +
                         std::to_string(minor) + "; versions 1.0, 2.0 and 3.0 can be read");
  }
  const std::size_t length_begin = kMagic.size() + 2, length_bytes = major == 1 ? 2 : 4;
  const std::size_t text_begin = length_begin + length_bytes;
  if (bytes.size() < text_begin) throw InputError(file, "", "ends within its header");
  const std::size_t length = little_endian(bytes.substr(length_begin, length_bytes));
  if (bytes.size() - text_begin < length) throw InputError(file, "", "ends within its header");
  HeaderReader(bytes.substr(text_begin, length), file).read(array);
  return text_begin + length;
}

std::string npy_header(std::string_view type, const std::vector<std::int64_t>& shape) {
  std::string sizes;
  for (const std::int64_t size : shape) sizes += std::to_string(size) + ", ";
  // Python's own way: (3, 4) but (3,).
  if (shape.size() == 1) sizes.pop_back();
  if (shape.size() > 1) sizes.resize(sizes.size() - 2);
  std::string text =
      "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  const std::size_t prefix = kMagic.size() + 4;
  while ((prefix + text.size() + 1) % kAlignmentOfData != 0) text += ' ';
  text += '\n';
  PIPEWRIGHT_ASSERT(text.size() < 65536, "a .npy header of more than 65535 bytes");
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00'};
  bytes += static_cast<char>(text.size() & 0xFFU);
  bytes += static_cast<char>(text.size() >> 8U);
  return bytes + text;
}

}  // namespace pipewright::exec
