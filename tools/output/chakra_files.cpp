#include "tools/output/chakra_files.hpp"

#include <algorithm>
#include <filesystem>

#include "core/base/error.hpp"
#include "traces/events/write_chakra.hpp"

namespace pipewright::tools {
namespace {

namespace fs = std::filesystem;

fs::path made_folder(const std::string& name) {
  std::error_code error;
  fs::create_directories(name, error);
  if (!error && fs::is_directory(name, error)) return name;
  throw InputError("--chakra: cannot make the folder " + name +
                   (error ? ": " + error.message() : std::string()));
}

fs::path file_of_rank(const fs::path& folder, std::size_t rank) {
  return folder / ("job." + std::to_string(rank) + ".et");
}

}  // namespace

Flag chakra_flag() {
  return {
      .group = "Output",
      .name = "--chakra",
      .argument = "FOLDER",
      .help = "write each rank's Chakra execution trace, FOLDER/job.0.et and so on, for ASTRA-sim",
      .is_file = true,
      .writes = Writes::Folder};
}

void save_chakra_files(const Arguments& arguments, Session& session, const Subject& subject,
                       const Timeline& timeline) {
  const auto name = arguments.text("--chakra");
  if (!name) return;
  const auto files = traces::chakra_files(subject.program, timeline, subject.costs);
  const fs::path folder = made_folder(*name);
  if (const fs::path other = file_of_rank(folder, files.size()); fs::exists(other))
    throw InputError(other.string(), "", "is of a job with more ranks; give another folder");
  for (std::size_t r = 0; r < files.size(); ++r) session.save(file_of_rank(folder, r), files[r]);
  session.wrote(folder / "job.*.et",
                "; ASTRA-sim takes them as --workload-configuration=" + (folder / "job").string());
  const auto sizes = subject.costs.message_bytes(subject.program);
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t bytes) { return bytes == 0; }))
    session.note("note: messages have no size in these costs (--message-bytes); 1 byte is written");
}

}  // namespace pipewright::tools
