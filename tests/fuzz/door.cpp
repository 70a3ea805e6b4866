#include "tests/fuzz/door.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <span>
#include <stdexcept>

#include "exec/transports/process/tcp/doorkeeper.hpp"

namespace pipewright::test {
namespace {

using namespace exec::tcp;

// An abstract name that the kernel chooses: no file, and nobody else's.
constexpr socklen_t kNoName = sizeof(sa_family_t);

Socket door() {
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_un any{.sun_family = AF_UNIX, .sun_path = ""};
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), kNoName) != 0 ||
      listen(socket.get(), 1) != 0)
    throw std::runtime_error("no socket to listen at");
  return socket;
}

Socket come_to(const Socket& door) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &size);
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    throw std::runtime_error("nobody listens");
  return socket;
}

void say(const Socket& visitor, const void* bytes, std::size_t size) {
  (void)::send(visitor.get(), bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Claim proved(const Lock& lock, const Socket& visitor) {
  Greeting greeting;
  if (recv(visitor.get(), &greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting)
    throw std::logic_error("the door has not greeted");
  Claim claim{.process = 1, .processes = 2};
  claim.proof = knockers_proof(lock, claim, greeting.challenge);
  return claim;
}

}  // namespace

void visit_door(std::string_view bytes) {
  static const std::array<Socket, 1> doors = {door()};
  const Lock lock{};
  Doorkeeper keeper(doors, lock);
  const Socket visitor = come_to(doors[0]);
  (void)keeper.let_in(0);
  const bool knows = !bytes.empty() && bytes.front() % 2 != 0;
  if (knows) {
    const Claim claim = proved(lock, visitor);
    say(visitor, &claim, sizeof claim);
    (void)keeper.let_in(0);
  }
  if (!bytes.empty()) say(visitor, bytes.data() + 1, bytes.size() - 1);
  const bool got_in = !keeper.let_in(0).empty();
  shutdown(visitor.get(), SHUT_WR);
  (void)keeper.let_in(0);
  if (got_in && !knows) throw std::logic_error("a stranger got in");
}

}  // namespace pipewright::test
