// Where a process stands in its job, and the meeting by files; exec/tcp/meeting.cpp has the
// one by TCP.
#include "exec/tcp/rendezvous.hpp"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "core/error.hpp"
#include "exec/local/waiting.hpp"
#include "exec/tcp/meeting.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr std::int64_t kLookNs = 5'000'000;
constexpr int kMostProcesses = 1 << 20;
constexpr int kLargestPort = 65535;

struct Found {
  std::string name, value;
};

std::optional<Found> first_of(const Environment& environment,
                              std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = environment(name)) return Found{name, *std::move(value)};
  }
  return std::nullopt;
}

int number_of(const Found& found, int least, int most) {
  int number = 0;
  const char* end = found.value.data() + found.value.size();
  const auto [rest, error] = std::from_chars(found.value.data(), end, number);
  if (error != std::errc() || rest != end || number < least || number > most)
    throw InputError(found.name + ": expected a number from " + std::to_string(least) + " to " +
                     std::to_string(most) + ", found \"" + found.value + "\"");
  return number;
}

void read_address(const Found& found, JobPlace& place) {
  constexpr std::string_view kTcp = "tcp://", kFile = "file://";
  const std::string_view text = found.value;
  if (text.starts_with(kFile) && text.size() > kFile.size()) {
    place.folder = text.substr(kFile.size());
    return;
  }
  const std::size_t colon = text.rfind(':');
  if (text.starts_with(kTcp) && colon > kTcp.size() && colon != text.npos) {
    place.host = text.substr(kTcp.size(), colon - kTcp.size());
    place.port = number_of({found.name, std::string(text.substr(colon + 1))}, 1, kLargestPort);
    return;
  }
  throw InputError(found.name + ": expected tcp://host:port or file:///folder, found \"" +
                   found.value + "\"");
}

void find_address(const Environment& environment, JobPlace& place) {
  if (const auto own = first_of(environment, {"PIPEWRIGHT_RENDEZVOUS"}))
    return read_address(*own, place);
  const auto host = first_of(environment, {"MASTER_ADDR"});
  const auto port = first_of(environment, {"MASTER_PORT"});
  if (host && port) {
    place.host = host->value;
    place.port = number_of(*port, 1, kLargestPort - 1) + 1;
    return;
  }
  throw InputError("the job has " + std::to_string(place.processes) +
                   " processes and does not say where they meet: set PIPEWRIGHT_RENDEZVOUS to "
                   "tcp://host:port or file:///folder, or MASTER_ADDR and MASTER_PORT");
}

// --- Files ---

std::filesystem::path file_of(const JobPlace& place, int process) {
  return std::filesystem::path(place.folder) / ("process-" + std::to_string(process));
}

/// Under another name first, so that whoever sees the file sees all of it.
void leave_file(const JobPlace& place, const Bytes& own) {
  const std::filesystem::path path = file_of(place, place.process);
  std::error_code failed;
  std::filesystem::create_directories(place.folder, failed);
  if (std::filesystem::exists(path))
    throw InputError(path.string(), "",
                     "is there already, from another run; name a fresh folder in "
                     "PIPEWRIGHT_RENDEZVOUS");
  const std::filesystem::path unfinished = path.string() + ".part";
  {
    std::ofstream file(unfinished, std::ios::binary);
    file.write(reinterpret_cast<const char*>(own.data()), static_cast<std::streamsize>(own.size()));
    if (!file.flush()) throw MachineError("cannot write " + unfinished.string());
  }
  std::filesystem::rename(unfinished, path, failed);
  if (failed) throw MachineError("cannot write " + path.string() + ": " + failed.message());
}

Bytes bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::vector<Bytes> meet_by_files(const JobPlace& place, const Bytes& own,
                                 const RendezvousOptions& options) {
  leave_file(place, own);
  const Patience patience(options);
  std::vector<Bytes> all;
  for (int p = 0; p < place.processes; ++p) {
    while (!std::filesystem::exists(file_of(place, p))) {
      patience.require("process " + std::to_string(p) + " has left no file in " + place.folder);
      local::sleep_until_steady(local::steady_ns() + kLookNs);
    }
    all.push_back(bytes_of(file_of(place, p)));
  }
  return all;
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::optional<JobPlace> job_place(const Environment& environment) {
  const auto rank = first_of(environment, {"PIPEWRIGHT_RANK", "RANK"});
  const auto size = first_of(environment, {"PIPEWRIGHT_WORLD_SIZE", "WORLD_SIZE"});
  if (!rank && !size) return std::nullopt;
  if (!rank || !size)
    throw InputError(
        (rank ? rank->name : size->name) + " is set and " +
        (rank ? "PIPEWRIGHT_WORLD_SIZE (or WORLD_SIZE)" : "PIPEWRIGHT_RANK (or RANK)") +
        " is not; a job sets both");
  JobPlace place;
  place.processes = number_of(*size, 1, kMostProcesses);
  place.process = number_of(*rank, 0, place.processes - 1);
  if (const auto local = first_of(environment, {"PIPEWRIGHT_LOCAL_RANK", "LOCAL_RANK"}))
    place.local_process = number_of(*local, 0, kMostProcesses);
  if (place.processes > 1) find_address(environment, place);
  return place;
}

std::vector<Bytes> come_together(const JobPlace& place, const Bytes& own,
                                 const RendezvousOptions& options) {
  if (place.processes == 1) return {own};
  if (!place.folder.empty()) return meet_by_files(place, own, options);
  return meet_by_tcp(place, own, options);
}

}  // namespace pipewright::exec::tcp
