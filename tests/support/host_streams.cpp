#include "tests/support/host_streams.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/base/random.hpp"

namespace pipewright::tests {
namespace host {
namespace {

struct Stream;
using StreamPtr = std::shared_ptr<Stream>;

/// Work that is kept, and the places of what has to be done before it.
struct Node {
  std::function<void()> work;
  std::vector<std::size_t> needs;
  std::function<bool()> can;  // null: always; else what other graphs have to do first
};

struct Capture {
  std::vector<Node> nodes;
  std::vector<std::weak_ptr<Stream>> streams;
  bool is_open = true;
  bool is_spoilt = false;  // somebody has asked for one of its events
};
using CapturePtr = std::shared_ptr<Capture>;

/// A graph that is done, once.
struct Replay {
  Replay(CapturePtr of, HostOrder in) : graph(std::move(of)), order(in), missing(nodes().size()) {
    needed_by.resize(nodes().size());
    for (std::size_t n = 0; n < nodes().size(); ++n) {
      missing[n] = nodes()[n].needs.size();
      for (const std::size_t need : nodes()[n].needs) needed_by[need].push_back(n);
      if (missing[n] == 0) ready.push_back(n);
    }
  }
  const std::vector<Node>& nodes() const { return graph->nodes; }

  CapturePtr graph;
  HostOrder order;
  std::vector<std::size_t> missing, ready;
  std::vector<std::vector<std::size_t>> needed_by;
};

/// Work, or a wait until `other` has done so much, or a graph.
struct Entry {
  std::function<void()> work;
  StreamPtr other;
  std::uint64_t position = 0;
  std::shared_ptr<Replay> replay = nullptr;
};

struct Stream {
  std::uint32_t number = 0;
  HostOrder order = HostOrder::Eager;
  std::deque<Entry> entries;
  std::uint64_t put = 0, done = 0;
  CapturePtr capture;               // null: what is put here is done
  std::vector<std::size_t> behind;  // of the capture: what the next node needs
};

struct Event {
  StreamPtr stream;  // null: never recorded, or in a capture
  std::uint64_t position = 0;
  CapturePtr capture;               // that has recorded it
  CapturePtr marked_in;             // the same of a mark
  std::vector<std::size_t> behind;  // of the capture
  std::shared_ptr<double> milliseconds = std::make_shared<double>(0);
};

/// The streams of all tables, and who may touch them: one thread at a time.
struct World {
  std::recursive_mutex mutex;
  std::vector<StreamPtr> streams;
  std::uint64_t turn = 0;
  std::uint32_t made = 0;
  HostCounts counts;
};

World& world() {
  static World one;
  return one;
}

std::string& last_failure() {
  static thread_local std::string what;
  return what;
}

StreamPtr& stream_of(void* stream) { return *static_cast<StreamPtr*>(stream); }
Event& event_of(void* event) { return *static_cast<Event*>(event); }

std::uint64_t pick(std::uint64_t n) {
  return exec::uniform_below(exec::key_of(1, "turn"), ++world().turn, n);
}

/// In some order that keeps the needs: as they came, the last one first, or any. False: what is
/// left waits for other graphs.
bool do_nodes(Replay& replay) {
  std::vector<std::size_t>& ready = replay.ready;
  while (!ready.empty()) {
    std::vector<std::size_t> able;
    std::copy_if(ready.begin(), ready.end(), std::back_inserter(able),
                 [&](std::size_t n) { return !replay.nodes()[n].can || replay.nodes()[n].can(); });
    if (able.empty()) return false;
    std::size_t next = able.back();
    if (replay.order == HostOrder::Eager) next = *std::min_element(able.begin(), able.end());
    if (replay.order == HostOrder::Shuffled) next = able[pick(able.size())];
    std::erase(ready, next);
    replay.nodes()[next].work();
    for (const std::size_t later : replay.needed_by[next]) {
      if (--replay.missing[later] == 0) ready.push_back(later);
    }
  }
  return true;
}

/// False: a graph waits for other graphs.
bool do_until(Stream& stream, std::uint64_t position) {
  while (stream.done < position) {
    const Entry& next = stream.entries.front();
    if (next.other != nullptr && !do_until(*next.other, next.position)) return false;
    if (next.replay != nullptr && !do_nodes(*next.replay)) return false;
    if (next.work) next.work();
    stream.entries.pop_front();
    ++stream.done;
  }
  return true;
}

/// Some entries of some stream of the same order.
void do_something() {
  World& all = world();
  Stream& stream = *all.streams[pick(all.streams.size())];
  if (stream.order == HostOrder::Shuffled)
    do_until(stream, stream.done + pick(stream.put - stream.done + 1));
}

void append(Stream& stream, Entry entry) {
  stream.entries.push_back(std::move(entry));
  ++stream.put;
  if (stream.order == HostOrder::Eager) do_until(stream, stream.put);
  if (stream.order == HostOrder::Shuffled) do_something();
}

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

std::function<void()> taking_the_time(Event& event) {
  event.milliseconds = std::make_shared<double>(0);
  return [at = event.milliseconds] { *at = now_ms(); };
}

/// Whether `stream` waits for the ends of all streams of its capture.
bool has_joined_all(const Stream& stream) {
  std::vector<bool> seen(stream.capture->nodes.size(), false);
  std::vector<std::size_t> open = stream.behind;
  while (!open.empty()) {
    const std::size_t n = open.back();
    open.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    const auto& needs = stream.capture->nodes[n].needs;
    open.insert(open.end(), needs.begin(), needs.end());
  }
  return std::all_of(
      stream.capture->streams.begin(), stream.capture->streams.end(), [&](const auto& which) {
        const StreamPtr other = which.lock();
        return other != nullptr && std::all_of(other->behind.begin(), other->behind.end(),
                                               [&](std::size_t n) { return seen[n]; });
      });
}

void enter_capture(const StreamPtr& stream, const CapturePtr& capture,
                   std::vector<std::size_t> behind) {
  stream->capture = capture;
  stream->behind = std::move(behind);
  capture->streams.push_back(stream);
}

int wait_in_capture(const StreamPtr& stream, const Event& event) {
  if (stream->capture == nullptr && event.capture->is_open) {
    enter_capture(stream, event.capture, event.behind);
    return 0;
  }
  if (stream->capture != event.capture)
    return failed("a stream that waits for another capture's event");
  for (const std::size_t n : event.behind) {
    if (std::find(stream->behind.begin(), stream->behind.end(), n) == stream->behind.end())
      stream->behind.push_back(n);
  }
  return 0;
}

int keep(Stream& stream, std::function<void()> work, std::function<bool()> can = nullptr) {
  stream.capture->nodes.push_back({std::move(work), std::move(stream.behind), std::move(can)});
  stream.behind = {stream.capture->nodes.size() - 1};
  return 0;
}

}  // namespace

int failed(const std::string& what) {
  last_failure() = what;
  return 1;
}

// --- Streams ---

void* make_stream(HostOrder order) {
  const std::scoped_lock lock(world().mutex);
  auto made = std::make_shared<Stream>();
  made->order = order;
  made->number = ++world().made;
  world().streams.push_back(made);
  return new StreamPtr(std::move(made));
}

void release_stream(void* stream) {
  const std::scoped_lock lock(world().mutex);
  const std::unique_ptr<StreamPtr> own(static_cast<StreamPtr*>(stream));
  do_until(**own, (*own)->put);
  std::erase(world().streams, *own);
}

int put(void* on, std::function<void()> work, const Label& label) {
  const std::scoped_lock lock(world().mutex);
  Stream& stream = *stream_of(on);
  work = watched(std::move(work), label, stream.number, stream.capture != nullptr);
  if (stream.capture == nullptr) {
    ++world().counts.puts;
    append(stream, {std::move(work), nullptr, 0});
    return 0;
  }
  return keep(stream, std::move(work));
}

bool is_captured(void* stream) {
  const std::scoped_lock lock(world().mutex);
  return stream_of(stream)->capture != nullptr;
}

int put_when(void* on, std::function<bool()> can, std::function<void()> work, const Label& label) {
  const std::scoped_lock lock(world().mutex);
  Stream& stream = *stream_of(on);
  if (stream.capture == nullptr) return failed("only work of a capture waits for other graphs");
  return keep(stream, watched(std::move(work), label, stream.number, true), std::move(can));
}

// --- Events ---

void* make_event() { return new Event(); }
void release_event(void* event) { delete static_cast<Event*>(event); }

int record(void* which, void* on) {
  const std::scoped_lock lock(world().mutex);
  Event& event = event_of(which);
  const StreamPtr& stream = stream_of(on);
  event.stream = nullptr;
  event.marked_in = nullptr;
  event.capture = stream->capture;
  event.behind = stream->behind;
  if (stream->capture != nullptr) return 0;
  append(*stream, {taking_the_time(event), nullptr, 0});
  event.stream = stream;
  event.position = stream->put;
  return 0;
}

int mark(void* which, void* on) {
  const std::scoped_lock lock(world().mutex);
  const CapturePtr capture = stream_of(on)->capture;
  if (capture == nullptr) return record(which, on);
  Event& event = event_of(which);
  event.stream = nullptr;
  event.capture = nullptr;
  event.marked_in = capture;
  return keep(*stream_of(on), taking_the_time(event));
}

int stream_waits(void* on, void* which) {
  const std::scoped_lock lock(world().mutex);
  const Event& event = event_of(which);
  const StreamPtr& stream = stream_of(on);
  if (event.capture != nullptr) return wait_in_capture(stream, event);
  if (event.marked_in != nullptr) return failed("a stream that waits for a mark of a capture");
  if (event.stream == nullptr) return 0;
  if (stream->capture != nullptr)
    return failed("a stream of a capture that waits for an event from before it");
  if (event.stream == stream) return 0;
  append(*stream, {nullptr, event.stream, event.position});
  return 0;
}

int is_over(void* which) {
  const std::scoped_lock lock(world().mutex);
  const Event& event = event_of(which);
  if (event.capture != nullptr || event.marked_in != nullptr) {
    if (event.capture != nullptr) event.capture->is_spoilt = true;
    failed("the host asks for an event of a capture");
    return -1;
  }
  return event.stream == nullptr || do_until(*event.stream, event.position) ? 1 : 0;
}

int wait_for_event(void* which) {
  int over = is_over(which);
  while (over == 0) {
    std::this_thread::yield();
    over = is_over(which);
  }
  return over > 0 ? 0 : 1;
}

int elapsed_ms(void* from, void* to, float* ms) {
  const std::scoped_lock lock(world().mutex);
  *ms = static_cast<float>(*event_of(to).milliseconds - *event_of(from).milliseconds);
  return 0;
}

// --- Graphs ---

int begin_capture(void* on) {
  const std::scoped_lock lock(world().mutex);
  const StreamPtr& stream = stream_of(on);
  if (stream->capture != nullptr) return failed("a stream that is captured already");
  enter_capture(stream, std::make_shared<Capture>(), {});
  return 0;
}

void* end_capture(void* on) {
  const std::scoped_lock lock(world().mutex);
  const StreamPtr& origin = stream_of(on);
  const CapturePtr capture = origin->capture;
  if (capture == nullptr || capture->streams.front().lock() != origin) {
    failed("no capture has begun on this stream");
    return nullptr;
  }
  const bool is_whole = has_joined_all(*origin);
  capture->is_open = false;
  for (const auto& which : capture->streams) {
    const StreamPtr stream = which.lock();
    if (stream == nullptr) continue;
    stream->capture = nullptr;
    stream->behind.clear();
  }
  if (is_whole && !capture->is_spoilt) return new CapturePtr(capture);
  failed(is_whole ? "the host has asked for an event of the capture"
                  : "a stream of the capture was not joined");
  return nullptr;
}

int launch(void* graph, void* on) {
  const std::scoped_lock lock(world().mutex);
  const StreamPtr& stream = stream_of(on);
  if (stream->capture != nullptr) return failed("a launch within a capture");
  ++world().counts.launches;
  auto replay = std::make_shared<Replay>(*static_cast<CapturePtr*>(graph), stream->order);
  append(*stream, {nullptr, nullptr, 0, std::move(replay)});
  return 0;
}

void release_graph(void* graph) { delete static_cast<CapturePtr*>(graph); }

const char* why() { return last_failure().c_str(); }

}  // namespace host

HostCounts host_counts() {
  const std::scoped_lock lock(host::world().mutex);
  return host::world().counts;
}

}  // namespace pipewright::tests
