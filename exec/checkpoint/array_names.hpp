// What a checkpoint's arrays are called, and how they lie, in the files of another program
// (docs/plan-format.md, "names.json"): other names, matrices the other way round, and one array
// here as several there. Values: any number of threads may read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"

namespace pipewright::exec {

/// A tensor of the file: the columns [first, first + columns) of an array here,
/// [rows][all_columns].
struct FileArray {
  std::string name;
  std::int64_t rows = 1, all_columns = 0, first = 0, columns = 0;
  bool is_matrix = false;      // in the file of two dimensions, else of one
  bool is_transposed = false;  // [columns][rows] there

  std::int64_t elements() const { return rows * columns; }
  std::vector<std::int64_t> shape() const;  // in the file
  void take(std::span<const float> array, std::span<float> tensor) const;
  void put(std::span<const float> tensor, std::span<float> array) const;
};

class ArrayNames {
 public:
  /// Every array keeps its name, in one dimension.
  ArrayNames() = default;
  /// Throws InputError with file and pointer.
  static ArrayNames read(const JsonCursor& document);

  bool empty() const { return entries_.empty(); }
  /// The tensors that an array is in the file; together they are the whole of it. Throws InputError
  /// where rows or columns do not divide it so.
  std::vector<FileArray> of(const std::string& array, std::int64_t elements) const;
  /// Throws InputError for an entry that is about none of these arrays.
  void require_used(const std::vector<std::string_view>& arrays) const;

 private:
  struct Entry {
    std::string ours;                 // a pattern: * stands for anything without a slash
    std::vector<std::string> theirs;  // with {1} for what the first * stands for
    std::int64_t rows = 1;
    std::vector<std::int64_t> columns;  // of each of `theirs`; empty: alike
    bool is_matrix = false, is_transposed = false;
    std::string pointer;
  };
  static Entry read_entry(const JsonCursor& value);
  std::vector<std::int64_t> columns_of(const Entry& entry, const std::string& array,
                                       std::int64_t elements) const;

  std::string file_;
  std::vector<Entry> entries_;  // the first that is about an array counts
};

}  // namespace pipewright::exec
