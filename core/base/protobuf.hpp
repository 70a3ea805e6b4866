// The wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding): a message
// is fields one after another, each a number with a way to read it, and a value. Nothing is copied:
// texts and messages are views of the file's bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// Where a message lies in its file, for what is wrong with it.
struct WireFile {
  std::string name;
  const char* first = nullptr;
  std::string_view kind;  // "an ONNX file"
};

enum class WireType { Varint, Fixed64, Delimited, Fixed32 };

struct WireField {
  std::uint32_t number = 0;
  WireType type = WireType::Varint;
  std::uint64_t value = 0;      // of all but Delimited
  std::string_view bytes = {};  // of Delimited
};

/// The fields of one message.
class WireMessage {
 public:
  WireMessage(std::string_view bytes, const WireFile& file) : left_(bytes), file_(file) {}

  /// The next field; none at the end. Throws InputError, with the place: bytes are missing, or are
  /// no field.
  std::optional<WireField> next();

  /// Of a field that has to be a text or a message. Throws InputError.
  std::string_view bytes_of(const WireField& field, std::string_view what) const;
  std::int64_t integer_of(const WireField& field, std::string_view what) const;
  float float_of(const WireField& field, std::string_view what) const;
  /// Numbers that stand alone or packed together.
  void add_integers(const WireField& field, std::string_view what,
                    std::vector<std::int64_t>& numbers) const;
  void add_floats(const WireField& field, std::string_view what, std::vector<float>& numbers) const;
  void add_doubles(const WireField& field, std::string_view what,
                   std::vector<double>& numbers) const;

  [[noreturn]] void fail(const char* at, const std::string& why) const;

 private:
  friend class WireStream;
  std::uint64_t varint(std::string_view& bytes) const;
  std::uint64_t fixed(std::string_view& bytes, std::size_t size) const;
  [[noreturn]] void refuse(const WireField& field, std::string_view what) const;
  /// "; is it an ONNX file?"
  std::string doubt() const;

  std::string_view left_;
  const WireFile& file_;
};

/// Messages one after the other, each with its length in front.
class WireStream {
 public:
  WireStream(std::string_view bytes, const WireFile& file) : messages_(bytes, file) {}

  /// The next one; none at the end. Throws InputError where it is cut short.
  std::optional<WireMessage> next();

 private:
  WireMessage messages_;
};

}  // namespace pipewright
