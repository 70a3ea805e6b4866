#include "exec/transports/process/tcp/wire.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"
#include "exec/transports/process/tcp/mesh.hpp"

namespace pipewright::exec::tcp {
namespace {

constexpr std::int64_t kLastBytesNs = 1'000'000'000;
constexpr int kLookMs = 20;
constexpr std::uint64_t kMostFloats = std::uint64_t{1} << 36U;

void make_ready(const Socket& socket) {
  const int yes = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/// The parts of a frame that are left from `done` on.
struct Rest {
  std::array<iovec, 3> parts{};
  int count = 0;
  std::size_t bytes = 0;
};

Rest rest_of(mpi::Frame& frame, std::size_t done) {
  Rest rest;
  const auto add = [&](void* data, std::size_t size) {
    const std::size_t skipped = std::min(done, size);
    done -= skipped;
    if (skipped == size) return;
    rest.parts[static_cast<std::size_t>(rest.count++)] = {static_cast<std::byte*>(data) + skipped,
                                                          size - skipped};
    rest.bytes += size - skipped;
  };
  add(&frame.head, sizeof frame.head);
  add(frame.note.data(), frame.note.size());
  add(frame.values.data(), frame.values.size() * sizeof(float));
  return rest;
}

}  // namespace

TcpWire::TcpWire(const JobPlace& place, const RendezvousOptions& options)
    : process_(place.process),
      peers_(static_cast<std::size_t>(place.processes)),
      polled_(peers_.size()) {
  std::vector<Socket> sockets = connect_all(place, options);
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (!sockets[p].is_open()) continue;
    make_ready(sockets[p]);
    peers_[p].socket = std::move(sockets[p]);
  }
}

void TcpWire::send(int to, mpi::Frame frame) {
  frame.head.note_bytes = static_cast<std::uint32_t>(frame.note.size());
  frame.head.floats = frame.values.size();
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  peer.sending.push_back({std::move(frame), 0});
  send_more(peer);
}

void TcpWire::send_more(Peer& peer) {
  while (!peer.sending.empty() && peer.hears) {
    Moving& moving = peer.sending.front();
    Rest rest = rest_of(moving.frame, moving.done);
    msghdr message{};
    message.msg_iov = rest.parts.data();
    message.msg_iovlen = static_cast<std::size_t>(rest.count);
    const ssize_t put = sendmsg(peer.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (put < 0) {
      peer.hears = false;
      break;
    }
    moving.done += static_cast<std::size_t>(put);
    if (static_cast<std::size_t>(put) < rest.bytes) continue;
    if (moving.frame.token != mpi::kNoToken) sent_.push_back(moving.frame.token);
    peer.sending.pop_front();
  }
  if (!peer.hears) peer.sending.clear();
}

std::optional<mpi::Frame> TcpWire::receive_from(Peer& peer) {
  while (true) {
    Moving& moving = peer.receiving;
    Rest rest = rest_of(moving.frame, moving.done);
    // A head says how much follows.
    const bool is_head = moving.done < sizeof(mpi::FrameHead);
    msghdr message{};
    message.msg_iov = rest.parts.data();
    message.msg_iovlen = static_cast<std::size_t>(rest.count);
    const ssize_t got = recvmsg(peer.socket.get(), &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (got <= 0) {
      peer.is_gone = true;
      peer.hears = false;
      peer.sending.clear();
      return std::nullopt;
    }
    moving.done += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < rest.bytes) continue;
    const mpi::FrameHead& head = moving.frame.head;
    if (is_head && (head.note_bytes > 0 || head.floats > 0)) {
      if (head.floats > kMostFloats) throw RunError("a frame came that no process has sent");
      moving.frame.note.resize(head.note_bytes);
      moving.frame.values.resize(head.floats);
      continue;
    }
    return std::exchange(moving, {}).frame;
  }
}

void TcpWire::find_readable() {
  for (std::size_t p = 0; p < peers_.size(); ++p)
    polled_[p] = {peers_[p].is_gone ? -1 : peers_[p].socket.get(), POLLIN, 0};
  if (poll(polled_.data(), polled_.size(), 0) <= 0) return;
  for (std::size_t p = polled_.size(); p-- > 0;) {
    if (polled_[p].revents != 0) readable_.push_back(static_cast<int>(p));
  }
}

std::optional<mpi::ArrivedFrame> TcpWire::receive() {
  if (readable_.empty()) find_readable();
  while (!readable_.empty()) {
    const int from = readable_.back();
    Peer& peer = peers_[static_cast<std::size_t>(from)];
    if (!peer.is_gone) {
      if (auto frame = receive_from(peer)) return mpi::ArrivedFrame{from, *std::move(frame)};
    }
    readable_.pop_back();
  }
  return std::nullopt;
}

std::vector<std::uint64_t> TcpWire::take_sent() {
  for (Peer& peer : peers_) send_more(peer);
  return std::exchange(sent_, {});
}

std::vector<int> TcpWire::take_gone() {
  std::vector<int> gone;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (!peers_[p].is_gone || std::exchange(peers_[p].is_told, true)) continue;
    gone.push_back(static_cast<int>(p));
  }
  return gone;
}

bool TcpWire::is_at_rest() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.sending.empty() && (peer.receiving.done == 0 || peer.is_gone);
  });
}

/// A socket that is closed with something unread takes back what is still on its way: so each side
/// reads until the other has ended.
void TcpWire::close() {
  for (Peer& peer : peers_) {
    if (peer.socket.is_open()) shutdown(peer.socket.get(), SHUT_WR);
  }
  const std::int64_t deadline = local::steady_ns() + kLastBytesNs;
  for (Peer& peer : peers_) {
    while (peer.socket.is_open() && !peer.is_gone && local::steady_ns() < deadline) {
      pollfd one{peer.socket.get(), POLLIN, 0};
      if (poll(&one, 1, kLookMs) > 0) receive_from(peer);
    }
    peer.socket = Socket();
    peer.is_gone = true;
  }
}

}  // namespace pipewright::exec::tcp
