// Reading a database of SQLite. The library is loaded when the first one is opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace pipewright::traces {

/// By the first bytes.
bool is_sqlite(std::string_view begin);
/// False where there is no such file, or its bytes come once only.
bool is_sqlite_file(const std::string& path);

/// The columns of one row; a NULL is no number and an empty text.
class DatabaseRow {
 public:
  explicit DatabaseRow(sqlite3_stmt* statement) : statement_(statement) {}
  std::optional<std::int64_t> number(int column) const;
  std::string text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

/// A file that comes from a stranger: nothing that it defines itself is run. All throw InputError
/// where it is damaged, MachineError where libsqlite3 is missing.
class Database {
 public:
  explicit Database(const std::string& path);
  /// Of a file that lies in memory, which must outlive it; `file` is for messages.
  Database(std::string_view bytes, const std::string& file);

  const std::string& file() const { return file_; }
  bool has_table(std::string_view name) const;
  void each(const std::string& query,
            const std::function<void(const DatabaseRow&)>& function) const;

 private:
  void open(const char* name);
  [[noreturn]] void fail() const;

  std::string file_;
  std::shared_ptr<sqlite3> database_;
};

}  // namespace pipewright::traces
