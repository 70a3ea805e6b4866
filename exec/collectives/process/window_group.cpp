#include "exec/collectives/process/window_group.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "exec/base/packing.hpp"
#include "exec/base/waiting.hpp"
#include "exec/collectives/shared_group.hpp"
#include "exec/transports/process/all_gather.hpp"
#include "exec/transports/process/presence.hpp"

namespace pipewright::exec::collectives {
namespace {

/// Of each of a member's two windows. Measured (docs/decisions/0031-cpu-collectives.md): smaller
/// ones meet more often, larger ones leave the caches.
constexpr std::size_t kWindowBytes = std::size_t{512} << 10U;

std::string system_says() { return std::strerror(errno); }

/// Memory of all members, and who of them is alive.
struct Mapping {
  Mapping(int descriptor, std::size_t size, int members, int own)
      : bytes(size), presence(members, own) {
    void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) throw MachineError("no memory for a group: " + system_says());
    at = static_cast<std::byte*>(mapped);
  }
  ~Mapping() { munmap(at, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* at = nullptr;
  const std::size_t bytes;
  mpi::Presence presence;
};

/// What a process tells the others: who it is and, of the first member, where the memory is.
struct Card {
  mpi::ProcessSite site;
  int descriptor = -1;
};

std::string text_of(const Card& card) {
  Packer packer;
  packer.put<int>(card.site.pid);
  packer.put_text(card.site.host);
  packer.put_text(card.site.machine);
  packer.put<int>(card.descriptor);
  const PackedBytes bytes = packer.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Card card_of(const std::string& text) {
  Unpacker unpacker(std::as_bytes(std::span(text)));
  Card card;
  card.site.pid = unpacker.get<int>();
  card.site.host = unpacker.get_text();
  card.site.machine = unpacker.get_text();
  card.descriptor = unpacker.get<int>();
  return card;
}

void make_room(const Descriptor& memory, std::size_t bytes) {
  if (memory.get() < 0 || ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    throw MachineError("no memory for a group: " + system_says());
}

std::shared_ptr<Mapping> map_memory(const std::vector<Card>& cards, std::size_t bytes, int own) {
  const Card& first = cards.front();
  for (const Card& card : cards) {
    if (card.site.machine != first.site.machine)
      throw MachineError("the members of a group of one host are on " + first.site.host + " and " +
                         card.site.host);
  }
  if (first.descriptor < 0) throw MachineError("member 0 has no memory for the group");
  const std::string path =
      "/proc/" + std::to_string(first.site.pid) + "/fd/" + std::to_string(first.descriptor);
  const Descriptor memory(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (memory.get() < 0)
    throw MachineError("cannot open the memory of process " + std::to_string(first.site.pid) +
                       ": " + system_says());
  auto mapping =
      std::make_shared<Mapping>(memory.get(), bytes, static_cast<int>(cards.size()), own);
  for (std::size_t m = 0; m < cards.size(); ++m) {
    if (static_cast<int>(m) != own)
      mapping->presence.met(static_cast<int>(m), cards[m].site, first.site, true);
  }
  return mapping;
}

std::string how_ended(mpi::Presence& presence, int member) {
  const std::int64_t now = local::steady_ns();
  presence.look(now);
  presence.has_read_all(now);  // there are no goodbyes to wait for
  return presence.is_lost(member) ? "is gone: its " + presence.how_lost(member) : "";
}

}  // namespace

std::unique_ptr<Group> window_group(mpi::Link& link, std::span<const int> processes,
                                    const Look& look) {
  const auto found = std::find(processes.begin(), processes.end(), link.process());
  const int own = found == processes.end() ? -1 : static_cast<int>(found - processes.begin());
  const int members = static_cast<int>(processes.size());
  const std::size_t bytes = Board::bytes(members, kWindowBytes);

  Card card{mpi::own_site(), -1};
  std::optional<Descriptor> memory;
  std::string why;
  std::shared_ptr<Mapping> mapping;
  // Whoever fails goes on to the second meeting all the same: the others wait for it there.
  try {
    if (own == 0) {
      memory.emplace(memfd_create("pipewright", MFD_CLOEXEC));
      make_room(*memory, bytes);
      card.descriptor = memory->get();
    }
  } catch (const MachineError& error) {
    why = error.what();
  }
  const std::vector<std::string> texts = mpi::all_gather(link, text_of(card));
  try {
    std::vector<Card> cards;
    for (const int process : processes)
      cards.push_back(card_of(texts[static_cast<std::size_t>(process)]));
    if (own >= 0) mapping = map_memory(cards, bytes, own);
  } catch (const MachineError& error) {
    if (why.empty()) why = error.what();
  }
  // The first member holds the memory open until all have it.
  for (const std::string& one : mpi::all_gather(link, why)) {
    if (!one.empty()) throw MachineError(one);
  }
  if (own < 0) return nullptr;
  mpi::Presence& presence = mapping->presence;
  return std::make_unique<SharedGroup>(
      Board::Place{.memory = mapping->at,
                   .member = own,
                   .members = members,
                   .window_bytes = kWindowBytes,
                   .how_ended = [&presence](int m) { return how_ended(presence, m); },
                   .look = look},
      mapping);
}

}  // namespace pipewright::exec::collectives
