#include "tests/support/host_streams.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
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
};

struct Capture {
  std::vector<Node> nodes;
  std::vector<std::weak_ptr<Stream>> streams;
  bool is_open = true;
};
using CapturePtr = std::shared_ptr<Capture>;

/// Work, or a wait until `other` has done so much.
struct Entry {
  std::function<void()> work;
  StreamPtr other;
  std::uint64_t position = 0;
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

void do_until(Stream& stream, std::uint64_t position) {
  while (stream.done < position) {
    const Entry next = std::move(stream.entries.front());
    stream.entries.pop_front();
    if (next.other != nullptr) do_until(*next.other, next.position);
    if (next.work) next.work();
    ++stream.done;
  }
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

/// In some order that keeps the needs: as they came, the last one first, or any.
void do_nodes(const Capture& graph, HostOrder order) {
  std::vector<std::size_t> missing(graph.nodes.size());
  std::vector<std::vector<std::size_t>> needed_by(graph.nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    missing[n] = graph.nodes[n].needs.size();
    for (const std::size_t need : graph.nodes[n].needs) needed_by[need].push_back(n);
    if (missing[n] == 0) ready.push_back(n);
  }
  while (!ready.empty()) {
    auto next = ready.end() - 1;
    if (order == HostOrder::Eager) next = std::min_element(ready.begin(), ready.end());
    if (order == HostOrder::Shuffled)
      next = ready.begin() + static_cast<std::ptrdiff_t>(pick(ready.size()));
    const std::size_t n = *next;
    ready.erase(next);
    graph.nodes[n].work();
    for (const std::size_t later : needed_by[n]) {
      if (--missing[later] == 0) ready.push_back(later);
    }
  }
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

int keep(Stream& stream, std::function<void()> work) {
  stream.capture->nodes.push_back({std::move(work), std::move(stream.behind)});
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

int wait_for_event(void* which) {
  const std::scoped_lock lock(world().mutex);
  const Event& event = event_of(which);
  if (event.capture != nullptr || event.marked_in != nullptr)
    return failed("the host waits for an event of a capture");
  if (event.stream != nullptr) do_until(*event.stream, event.position);
  return 0;
}

int is_over(void* which) { return wait_for_event(which) == 0 ? 1 : -1; }

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
  if (is_whole) return new CapturePtr(capture);
  failed("a stream of the capture was not joined");
  return nullptr;
}

int launch(void* graph, void* on) {
  const std::scoped_lock lock(world().mutex);
  const StreamPtr& stream = stream_of(on);
  if (stream->capture != nullptr) return failed("a launch within a capture");
  ++world().counts.launches;
  append(*stream, {[capture = *static_cast<CapturePtr*>(graph), order = stream->order] {
                     do_nodes(*capture, order);
                   },
                   nullptr, 0});
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
