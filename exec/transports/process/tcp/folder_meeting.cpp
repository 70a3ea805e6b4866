#include "exec/transports/process/tcp/folder_meeting.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"
#include "exec/transports/process/tcp/private_file.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr std::int64_t kLookNs = 5'000'000;
constexpr const char* kFreshFolder = "; name a fresh folder in PIPEWRIGHT_RENDEZVOUS";

std::filesystem::path file_of(const JobPlace& place, const std::string& name, int process) {
  return std::filesystem::path(place.folder) / (name + std::to_string(process));
}

/// With those above it; a new one is its user's alone.
void make_folder_of_job(const std::filesystem::path& folder) {
  std::error_code failed;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), failed);
  mkdir(folder.c_str(), S_IRWXU);
  if (!std::filesystem::is_directory(folder, failed))
    throw InputError(folder.string(), "",
                     std::string("is no folder, and cannot be made one") + kFreshFolder);
}

/// Under another name first, so that whoever sees the file sees all of it.
FileOwner leave_file(const std::filesystem::path& path, const PackedBytes& own) {
  std::error_code failed;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, failed)))
    throw InputError(path.string(), "",
                     std::string("is there already, from another run") + kFreshFolder);
  const std::filesystem::path unfinished = path.string() + ".part";
  FileOwner owner;
  try {
    owner = write_private_file(unfinished, own);
  } catch (const InputError& error) {
    throw InputError(error.file(), "", error.message() + kFreshFolder);
  }
  std::filesystem::rename(unfinished, path, failed);
  if (!failed) return owner;
  unlink(unfinished.c_str());
  throw MachineError("cannot write " + path.string() + ": " + failed.message());
}

std::optional<ReadFile> file_of_another(const std::filesystem::path& path) {
  try {
    return read_private_file(path, Links::Refused);
  } catch (const InputError& error) {
    throw InputError(error.file(), "", error.message() + kFreshFolder);
  }
}

}  // namespace

std::vector<PackedBytes> meet_by_files(const JobPlace& place, const PackedBytes& own,
                                       const std::string& name, const RendezvousOptions& options) {
  make_folder_of_job(place.folder);
  const FileOwner owner = leave_file(file_of(place, name, place.process), own);
  if (place.token.empty() && !owner.is_private)
    throw MachineError("the file system of " + place.folder +
                       " lets others read the job's files there; use another folder, or give the "
                       "job a PIPEWRIGHT_TOKEN");
  const Patience patience(options);
  std::vector<PackedBytes> all;
  for (int p = 0; p < place.processes; ++p) {
    const std::filesystem::path path = file_of(place, name, p);
    std::optional<ReadFile> file;
    while (!(file = file_of_another(path))) {
      patience.require("process " + std::to_string(p) + " has left no file in " + place.folder);
      local::sleep_until_steady(local::steady_ns() + kLookNs);
    }
    if (place.token.empty() && (file->owner.user != owner.user || !file->owner.is_private))
      throw InputError(path.string(), "",
                       "is not of this job's user alone (mode 0600)" + std::string(kFreshFolder));
    all.push_back(std::move(file->bytes));
  }
  return all;
}

}  // namespace pipewright::exec::tcp
