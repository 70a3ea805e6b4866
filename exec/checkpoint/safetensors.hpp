// Files of the safetensors format (https://huggingface.co/docs/safetensors): eight bytes with the
// length of a JSON header, the header, and the tensors' bytes one after another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/base/durable_file.hpp"

namespace pipewright::exec {

/// The type of the arrays of checkpoints.
inline constexpr std::string_view kSafeFloats = "F32";

struct SafeTensor {
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::int64_t first_byte = 0, bytes = 0;  // of the file

  std::int64_t elements() const;  // by its shape
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafeTensor> tensors;  // as their bytes lie

  /// nullptr: there is none of that name.
  const SafeTensor* find(std::string_view name) const;
};

/// Of a file of so many bytes that begins with `bytes`, which hold the whole header. The tensors
/// have to fill the rest one after another, each with as many bytes as its shape and type need.
/// Throws InputError with file and JSON pointer.
SafetensorsHeader parse_safetensors(std::string_view bytes, std::int64_t file_bytes,
                                    const std::string& file);
/// Reads no more of the file than its header.
SafetensorsHeader read_safetensors(const std::filesystem::path& file);

/// A file of F32 arrays, written one after another: there whole, or not at all.
/// Throws MachineError.
class SafetensorsWriter {
 public:
  struct Array {
    std::string name;
    std::int64_t elements = 0;
    std::optional<std::vector<std::int64_t>> shape = {};  // of one dimension where left out
  };
  SafetensorsWriter(const std::filesystem::path& file, const std::vector<Array>& arrays,
                    const std::map<std::string, std::string>& metadata);

  /// The next values, from those of the first array on.
  void write(std::span<const float> values);
  /// Gives the file its name; all arrays have been written.
  void finish();

 private:
  std::string name_;
  DurableFile file_;
  std::int64_t bytes_ = 0;  // that the whole file has
};

}  // namespace pipewright::exec
