#include "sim/dumps/dump_files.hpp"

#include <algorithm>
#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace pipewright::sim {
namespace {

/// A key of every dump, in either form.
constexpr std::string_view kMark = "pg_config";

void read_folder(const std::string& folder, std::vector<Dump>& dumps) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  const std::size_t before = dumps.size();
  for (const std::string& file : files) {
    const std::string bytes = read_text(file);
    if (bytes.find(kMark) != bytes.npos) dumps.push_back(read_dump(bytes, file));
  }
  if (dumps.size() == before)
    throw InputError(folder, "", "has no Flight Recorder dump in it, neither a pickle nor JSON");
}

}  // namespace

std::vector<Dump> read_dump_files(const std::vector<std::string>& paths) {
  std::vector<Dump> dumps;
  for (const std::string& path : paths) {
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) {
      read_folder(path, dumps);
    } else {
      dumps.push_back(read_dump(read_text(path), path));
    }
  }
  return dumps;
}

}  // namespace pipewright::sim
