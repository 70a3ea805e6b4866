#include "exec/transports/process/tcp/knock.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr std::int64_t kKnockAgainNs = 50'000'000;
constexpr std::int64_t kConnectNs = 2'000'000'000;
constexpr std::int64_t kTryNs = 5'000'000'000;
constexpr std::int64_t kBelieveNs = 5'000'000'000;

struct Try {
  std::optional<Entrance> entrance;
  std::string why;  // there is none
  bool is_refused = false;
};

/// One visit to a door; `silent` says that whoever is behind it keeps silent.
class Visit {
 public:
  Visit(const DoorTo& door, const Knocker& knocker, const Patience& patience,
        const std::string& silent)
      : door_(door), knocker_(knocker), patience_(patience), silent_(silent) {}

  Try go() const {
    const std::optional<Block> key = door_.key();
    if (!key) return {{}, door_.why_no_key};
    const std::int64_t now = local::steady_ns();
    std::optional<Socket> socket;
    try {
      socket = connect_to(addresses_of(door_.host, door_.port), now + kConnectNs);
    } catch (const MachineError& error) {
      return {{}, error.what()};  // a host that is being made gets its name late
    }
    if (!socket) return {{}, "nobody listens there"};
    return introduce(*std::move(socket), {*key, door_.owner}, now + kTryNs);
  }

 private:
  Try introduce(Socket socket, const Lock& lock, std::int64_t until) const {
    Greeting greeting;
    if (!hear(socket, greeting, until) || greeting.magic != kMagic)
      return {{}, "what listens there does not greet as Pipewright does"};
    Claim claim{.process = static_cast<std::uint32_t>(knocker_.process),
                .processes = static_cast<std::uint32_t>(knocker_.processes),
                .challenge = random_block()};
    claim.proof = knockers_proof(lock, claim, greeting.challenge);
    Welcome welcome;
    if (!write_all(socket, &claim, sizeof claim, patience_, silent_, until) ||
        !hear(socket, welcome, until))
      return {{}, "what listens there does not let this process in"};
    if (welcome.answer == Answer::WrongToken)
      return {{}, "its token is another one than this process's", true};
    if (!is_same(welcome.proof, doors_proof(lock, claim, greeting.challenge)))
      return {{}, "what listens there does not know the job's token"};
    Entrance entrance{std::move(socket), session_key(lock, claim, greeting.challenge)};
    const PackedBytes said = sealed(entrance.session, Speaker::Knocker, knocker_.bytes);
    if (!write_all(entrance.socket, said.data(), said.size(), patience_, silent_))
      return {{}, "what listens there has gone"};
    return {std::move(entrance), {}};
  }

  template <class T>
  bool hear(const Socket& socket, T& message, std::int64_t until) const {
    return read_all(socket, &message, sizeof message, patience_, silent_, until);
  }

  const DoorTo& door_;
  const Knocker& knocker_;
  const Patience& patience_;
  const std::string& silent_;
};

}  // namespace

Entrance knock(const DoorTo& door, const Knocker& knocker, const Patience& patience) {
  const std::string silent = "process " + std::to_string(door.owner) + " does not answer at " +
                             address_text(door.host, door.port);
  const std::string mute = silent + ": what listens there says nothing";
  const Visit visit(door, knocker, patience, mute);
  std::int64_t refused_since = kNoDeadline;
  while (true) {
    Try now = visit.go();
    if (now.entrance) return *std::move(now.entrance);
    refused_since = now.is_refused ? std::min(refused_since, local::steady_ns()) : kNoDeadline;
    if (door.may_refuse && local::steady_ns() - refused_since > kBelieveNs)
      throw InputError(silent + ": " + now.why +
                       "; give every process of the job the same PIPEWRIGHT_TOKEN, or the same "
                       "PIPEWRIGHT_TOKEN_FILE");
    patience.require(silent + ": " + now.why);
    local::sleep_until_steady(local::steady_ns() + kKnockAgainNs);
  }
}

PackedBytes read_sealed(const Entrance& entrance, Speaker speaker, const Patience& patience,
                        const std::string& missing, const std::string& has_gone) {
  const auto fail = [](const std::string& why) {
    throw MachineError("the processes of the job have not met: " + why);
  };
  std::uint64_t size = 0;
  if (!read_all(entrance.socket, &size, sizeof size, patience, missing)) fail(has_gone);
  if (size > kMostSealedBytes) fail("somebody between them changes what they say");
  PackedBytes bytes(size);
  Block seal;
  if (!read_all(entrance.socket, bytes.data(), bytes.size(), patience, missing) ||
      !read_all(entrance.socket, &seal, sizeof seal, patience, missing))
    fail(has_gone);
  if (!is_same(seal, seal_of_bytes(entrance.session, speaker, bytes)))
    fail("somebody between them changes what they say");
  return bytes;
}

}  // namespace pipewright::exec::tcp
