#include "traces/events/sqlite.hpp"

#include <dlfcn.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.hpp"

namespace pipewright::traces {
namespace {

/// SQLite's functions, by their own names and types.
struct Library {
#define PIPEWRIGHT_SQLITE_FUNCTION(name) decltype(&::name) name = find<decltype(&::name)>(#name)
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_open_v2);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_close);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_db_config);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_deserialize);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_errmsg);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_prepare_v2);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_step);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_finalize);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_column_type);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_column_int64);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_column_text);
  PIPEWRIGHT_SQLITE_FUNCTION(sqlite3_column_bytes);
#undef PIPEWRIGHT_SQLITE_FUNCTION

 private:
  template <class Function>
  static Function find(const char* name) {
    // Never closed; a second time costs nothing.
    void* const library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
    void* const found = library == nullptr ? nullptr : dlsym(library, name);
    if (found == nullptr) {
      throw MachineError(std::string("exports of Nsight Systems are read by SQLite, which cannot "
                                     "be loaded here: ") +
                         dlerror() + "; install libsqlite3-0");
    }
    return reinterpret_cast<Function>(found);
  }
};

const Library& sqlite() {
  static const Library library;
  return library;
}

}  // namespace

bool is_sqlite(std::string_view begin) {
  using namespace std::string_view_literals;
  return begin.starts_with("SQLite format 3\0"sv);
}

bool is_sqlite_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::string bytes(16, '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), 16);
  return is_sqlite(bytes);
}

std::optional<std::int64_t> DatabaseRow::number(int column) const {
  if (sqlite().sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return sqlite().sqlite3_column_int64(statement_, column);
}

std::string DatabaseRow::text(int column) const {
  const auto* bytes = sqlite().sqlite3_column_text(statement_, column);
  if (bytes == nullptr) return "";
  return {reinterpret_cast<const char*>(bytes),
          static_cast<std::size_t>(sqlite().sqlite3_column_bytes(statement_, column))};
}

Database::Database(const std::string& path) : file_(path) { open(path.c_str()); }

Database::Database(std::string_view bytes, const std::string& file) : file_(file) {
  open(":memory:");
  // It is read only: SQLite does not write there.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  if (sqlite().sqlite3_deserialize(database_.get(), "main", data, size, size,
                                   SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
    fail();
}

void Database::open(const char* name) {
  sqlite3* opened = nullptr;
  const int status = sqlite().sqlite3_open_v2(name, &opened, SQLITE_OPEN_READONLY, nullptr);
  database_.reset(opened, sqlite().sqlite3_close);
  if (status != SQLITE_OK) fail();
  sqlite().sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite().sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
}

void Database::fail() const {
  throw InputError(file_, "",
                   std::string("cannot be read as an export of Nsight Systems: ") +
                       sqlite().sqlite3_errmsg(database_.get()) +
                       "; write it with nsys export --type sqlite");
}

bool Database::has_table(std::string_view name) const {
  bool found = false;
  each("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '" + std::string(name) + "'",
       [&](const DatabaseRow&) { found = true; });
  return found;
}

void Database::each(const std::string& query,
                    const std::function<void(const DatabaseRow&)>& function) const {
  sqlite3_stmt* prepared = nullptr;
  if (sqlite().sqlite3_prepare_v2(database_.get(), query.c_str(), -1, &prepared, nullptr) !=
      SQLITE_OK)
    fail();
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared,
                                                                        sqlite().sqlite3_finalize);
  int status = SQLITE_OK;
  while ((status = sqlite().sqlite3_step(prepared)) == SQLITE_ROW) function(DatabaseRow(prepared));
  if (status != SQLITE_DONE) fail();
}

}  // namespace pipewright::traces
