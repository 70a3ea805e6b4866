// Where a process stands in its job. The meetings are in meeting.cpp and folder_meeting.cpp of
// exec/transports/process/tcp/.
#include "exec/transports/process/tcp/rendezvous.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/base/error.hpp"
#include "exec/transports/process/tcp/folder_meeting.hpp"
#include "exec/transports/process/tcp/meeting.hpp"
#include "exec/transports/process/tcp/token.hpp"

namespace pipewright::exec::tcp {
namespace {

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

/// An address of IPv6 has colons of its own: tcp://[::1]:2950.
std::string without_brackets(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return std::string(host);
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
    place.host = without_brackets(text.substr(kTcp.size(), colon - kTcp.size()));
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

/// The token, however it is given.
std::string find_token(const Environment& environment) {
  const auto token = environment("PIPEWRIGHT_TOKEN");
  const auto file = environment("PIPEWRIGHT_TOKEN_FILE");
  if (token && file)
    throw InputError(
        "PIPEWRIGHT_TOKEN and PIPEWRIGHT_TOKEN_FILE are both set; a job has one token");
  if (file) return read_token_file(*file);
  if (token && token->empty())
    throw InputError("PIPEWRIGHT_TOKEN: expected the job's token, found nothing; " +
                     how_to_make_token());
  return token.value_or("");
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
  if (place.processes == 1) return place;
  find_address(environment, place);
  place.token = find_token(environment);
  place.listen = environment("PIPEWRIGHT_LISTEN").value_or("");
  return place;
}

std::vector<PackedBytes> come_together(const JobPlace& place, const PackedBytes& own,
                                       const RendezvousOptions& options) {
  if (place.processes == 1) return {own};
  if (!place.folder.empty()) return meet_by_files(place, own, "process-", options);
  const Patience patience(options);
  if (place.process != 0) meeting_place(place, patience);
  return meet_by_tcp(place, own, options,
                     place.process == 0 ? meeting_doors(place, patience) : std::vector<Socket>())
      .all;
}

}  // namespace pipewright::exec::tcp
