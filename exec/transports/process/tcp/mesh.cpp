#include "exec/transports/process/tcp/mesh.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "exec/transports/process/presence.hpp"
#include "exec/transports/process/tcp/doorkeeper.hpp"
#include "exec/transports/process/tcp/folder_meeting.hpp"
#include "exec/transports/process/tcp/knock.hpp"
#include "exec/transports/process/tcp/meeting.hpp"
#include "exec/transports/process/tcp/token.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr int kDoorLooksMs = 100;
constexpr const char* kEveryAddress = "::";
constexpr const char* kEveryAddressV4 = "0.0.0.0";

/// How the others reach a process.
struct Card {
  std::string host;
  int port = 0;
};

/// What a process knows once all have met.
struct Mesh {
  Block key{};  // of these connections alone
  std::vector<Card> cards;
  std::vector<Socket> doors;  // its own
};

std::size_t index_of(int process) { return static_cast<std::size_t>(process); }

/// No two jobs have it, though they may have one token.
Block mesh_key(const Block& job_key, const Block& job) {
  return proof_of(job_key, "pipewright mesh", {job});
}

// --- By TCP ---

/// A door of its own at the address by which process 0 sees it, or at the one it was told.
Card open_own_door(const JobPlace& place, const Patience& patience, std::vector<Socket>& doors) {
  Card card{place.listen, 0};
  const Addresses meeting = meeting_place(place, patience);
  const bool everywhere = !card.host.empty() && is_wildcard(addresses_of(card.host, 0));
  if (card.host.empty() || everywhere) card.host = own_address_towards(meeting);
  if (card.host.empty()) throw MachineError("there is no way from this host to " + place.host);
  const std::string& at = everywhere ? place.listen : card.host;
  const Addresses own = addresses_of(at, 0);
  if (place.token.empty() && !is_loopback(own))
    throw InputError(
        "PIPEWRIGHT_LISTEN: strangers can knock at " + at +
        " too, so the job's processes need a token that only they know: " + how_to_make_token());
  doors = listen_at(own, at, 0);
  doors.erase(doors.begin() + 1, doors.end());
  card.port = port_of(doors.front());
  return card;
}

Mesh meet_for_mesh(const JobPlace& place, const RendezvousOptions& options) {
  const Patience patience(options);
  Mesh mesh;
  Card own{place.host, place.port};  // process 0's door is that of the meeting
  if (place.process == 0)
    mesh.doors = meeting_doors(place, patience);
  else
    own = open_own_door(place, patience, mesh.doors);
  Packer packer;
  packer.put_text(own.host);
  packer.put<int>(own.port);
  packer.put<Block>(place.process == 0 ? random_block() : Block{});
  const Met met = meet_by_tcp(place, packer.take(), options, mesh.doors);
  Block job{};
  for (const PackedBytes& bytes : met.all) {
    Unpacker unpacker(bytes);
    Card card{unpacker.get_text(), 0};
    card.port = unpacker.get<int>();
    const auto block = unpacker.get<Block>();
    if (mesh.cards.empty()) job = block;
    mesh.cards.push_back(std::move(card));
  }
  mesh.cards.front() = {place.host, place.port};  // by the name that this process has for it
  mesh.key = mesh_key(met.key, job);
  return mesh;
}

// --- By files ---

/// Two rounds: the first tells whether all share a loopback, and only then is it known where to
/// listen.
Mesh meet_for_mesh_by_files(const JobPlace& place, const RendezvousOptions& options) {
  Mesh mesh;
  const std::string network = mpi::own_site().network;
  Packer first;
  first.put_text(network);
  // Without a token this is the secret, and the file is read by the job's user alone.
  first.put<Block>(place.process == 0 ? random_block() : Block{});
  bool is_one_network = true;
  Block job{};
  const std::vector<PackedBytes> sites = meet_by_files(place, first.take(), "process-", options);
  for (std::size_t p = 0; p < sites.size(); ++p) {
    Unpacker unpacker(sites[p]);
    is_one_network = unpacker.get_text() == network && is_one_network;
    const auto block = unpacker.get<Block>();
    if (p == 0) job = block;
  }
  mesh.key = mesh_key(place.token.empty() ? job : key_of_token(place.token), job);

  std::string at = place.listen;
  if (at.empty()) at = is_one_network ? "127.0.0.1" : kEveryAddress;
  try {
    mesh.doors = listen_at(addresses_of(at, 0), at, 0);
  } catch (const MachineError&) {
    if (at != kEveryAddress) throw;
    mesh.doors = listen_at(addresses_of(kEveryAddressV4, 0), kEveryAddressV4, 0);
  }
  mesh.doors.erase(mesh.doors.begin() + 1, mesh.doors.end());
  const bool everywhere = is_wildcard(addresses_of(at, 0));
  Packer second;
  second.put_text(everywhere ? mpi::own_site().host : at);
  second.put<int>(port_of(mesh.doors.front()));
  for (const PackedBytes& bytes : meet_by_files(place, second.take(), "door-", options)) {
    Unpacker unpacker(bytes);
    Card card{unpacker.get_text(), 0};
    card.port = unpacker.get<int>();
    mesh.cards.push_back(std::move(card));
  }
  return mesh;
}

// --- Both ---

Socket knock_at(const Mesh& mesh, int owner, const JobPlace& place, const Patience& patience) {
  const Card& card = mesh.cards[index_of(owner)];
  const DoorTo door{
      .host = card.host, .port = card.port, .owner = owner, .key = [&mesh] { return mesh.key; }};
  return knock(door, {place.process, place.processes, {}}, patience).socket;
}

void require_all_stay(const std::vector<Socket>& peers) {
  for (std::size_t p = 0; p < peers.size(); ++p) {
    if (peers[p].is_open() && has_gone(peers[p]))
      throw MachineError("the processes of the job have not met: process " + std::to_string(p) +
                         " has come and closed its connection");
  }
}

/// Those with a higher number than this one.
void let_in_all(const Mesh& mesh, const JobPlace& place, const Patience& patience,
                std::vector<Socket>& peers) {
  Doorkeeper keeper(mesh.doors, {mesh.key, place.process});
  for (int missing = place.processes - 1 - place.process; missing > 0;) {
    patience.require(std::to_string(missing) + " of the processes have not connected");
    for (Guest& guest : keeper.let_in(kDoorLooksMs)) {
      const bool is_ours = guest.process < peers.size() &&
                           std::cmp_greater(guest.process, place.process) &&
                           !peers[guest.process].is_open();
      if (!is_ours) continue;
      peers[guest.process] = std::move(guest.socket);
      --missing;
    }
    require_all_stay(peers);
  }
}

}  // namespace

/// Each process knocks at those with a lower number and lets in those with a higher one.
std::vector<Socket> connect_all(const JobPlace& place, const RendezvousOptions& options) {
  std::vector<Socket> peers(index_of(place.processes));
  if (place.processes == 1) return peers;
  const Mesh mesh =
      place.folder.empty() ? meet_for_mesh(place, options) : meet_for_mesh_by_files(place, options);
  const Patience patience(options);
  for (int p = 0; p < place.process; ++p) peers[index_of(p)] = knock_at(mesh, p, place, patience);
  let_in_all(mesh, place, patience, peers);
  return peers;
}

}  // namespace pipewright::exec::tcp
