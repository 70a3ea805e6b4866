#include "tests/support/profiling/host_activities.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "exec/base/waiting.hpp"
#include "exec/devices/cuda/module/activity_records.hpp"
#include "tests/support/host_streams.hpp"

namespace pipewright::tests::host {
namespace {

using exec::cuda::AboutStack;
using exec::cuda::ActivityRecords;

constexpr std::size_t kRecordsOfBuffer = 7;
/// The profiler's own clock is behind the host's by this.
constexpr std::int64_t kBehindNs = 987'654'321'012;

std::int64_t own_clock() { return exec::local::steady_ns() - kBehindNs; }

/// A call, which is about something, or work that has been done.
struct Record {
  std::uint32_t call = 0;
  std::uint64_t about = 0, node = 0;
  bool is_work = false;
  pipewright_cuda_activity work{};
};

/// Reads full buffers one after another on its own thread.
class Reader {
 public:
  Reader(std::int64_t (*now)(), std::size_t most) : now_(now) { records_.begin(most); }
  ~Reader() {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  ActivityRecords& records() { return records_; }
  std::uint64_t new_node() { return ++nodes_; }
  std::uint32_t new_call() { return ++calls_; }

  void note(const Record& record) {
    const std::scoped_lock lock(mutex_);
    filling_.push_back(record);
    if (filling_.size() == kRecordsOfBuffer) hand_over();
  }
  /// Returns when all is read.
  void flush() {
    std::unique_lock lock(mutex_);
    hand_over();
    changed_.wait(lock, [this] { return full_.empty() && !is_reading_; });
  }

 private:
  void hand_over() {
    full_.push_back(std::exchange(filling_, {}));
    changed_.notify_all();
  }
  void read() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_over_ || !full_.empty(); });
      if (full_.empty()) return;
      const std::vector<Record> buffer = std::move(full_.front());
      full_.pop_front();
      is_reading_ = true;
      lock.unlock();
      const std::int64_t ahead = ahead_of_own_clock();
      for (const Record& record : buffer) read(record, ahead);
      lock.lock();
      is_reading_ = false;
      changed_.notify_all();
    }
  }
  /// By the readings that lie closest together.
  std::int64_t ahead_of_own_clock() const {
    std::int64_t ahead = 0, narrowest = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < 5; ++i) {
      const std::int64_t before = own_clock(), now = now_(), width = own_clock() - before;
      if (width >= narrowest) continue;
      narrowest = width;
      ahead = now - before - width / 2;
    }
    return ahead;
  }
  void read(const Record& record, std::int64_t ahead) {
    if (!record.is_work) return records_.note_call(record.call, record.about);
    pipewright_cuda_activity work = record.work;
    work.start_ns += ahead;
    work.end_ns += ahead;
    records_.note_work(work, record.call, record.node);
  }

  std::int64_t (*const now_)();
  ActivityRecords records_;
  std::atomic<std::uint64_t> nodes_{0};
  std::atomic<std::uint32_t> calls_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Record> filling_;
  std::deque<std::vector<Record>> full_;
  bool is_over_ = false, is_reading_ = false;
  std::thread thread_{[this] { read(); }};
};

/// Work that was put on a stream may be done after the recording.
std::mutex recording_mutex;
std::shared_ptr<Reader> recording;

std::shared_ptr<Reader> current() {
  const std::scoped_lock lock(recording_mutex);
  return recording;
}

thread_local AboutStack about_of_thread;
Watcher other;

int record_all(std::int64_t (*now)(), std::size_t most) {
  const std::scoped_lock lock(recording_mutex);
  if (recording != nullptr) return failed("what GPUs do is recorded already");
  recording = std::make_shared<Reader>(now, most);
  return 0;
}

int take_all(void (*taken)(void*, const pipewright_cuda_activity*), void* by,
             std::int64_t* dropped) {
  const auto from = current();
  if (from == nullptr) return failed("nothing is recorded");
  from->flush();
  *dropped = from->records().take([&](const pipewright_cuda_activity& one) { taken(by, &one); });
  return 0;
}

}  // namespace

void watch_with(const Watcher& watcher) { other = watcher; }

std::function<void()> watched(std::function<void()> work, const Label& label, std::uint32_t stream,
                              bool captured) {
  if (other.put != nullptr) {
    pipewright_cuda_activity piece{label.kind, 0, 1, stream, 0, 0, 0, label.bytes, label.name};
    return [piece, number = other.put(captured ? 1 : 0), work = std::move(work)]() mutable {
      piece.start_ns = exec::local::steady_ns();
      work();
      piece.end_ns = exec::local::steady_ns();
      other.done(number, &piece);
    };
  }
  const auto by = current();
  if (by == nullptr) return work;
  Record record;
  record.is_work = true;
  record.work = {label.kind, 0, 1, stream, 0, 0, 0, label.bytes, label.name};
  if (captured) {
    const std::uint64_t node = by->new_node();
    record.node = by->new_node();  // of the graph that is launched
    by->records().note_node(node, about_of_thread.now());
    by->records().note_copied_node(record.node, node);
  } else {
    record.call = by->new_call();
    if (about_of_thread.now() != 0) by->note({record.call, about_of_thread.now()});
  }
  return [by, record, work = std::move(work)]() mutable {
    record.work.start_ns = own_clock();
    work();
    record.work.end_ns = own_clock();
    by->note(record);
  };
}

void offer_activities(pipewright_cuda& table) {
  table.activities_are_there = [] { return 0; };
  table.activities_version = [] { return 130001; };
  table.record_activities = record_all;
  table.begin_about = [](std::uint64_t what) { about_of_thread.begin(what); };
  table.end_about = [] { about_of_thread.end(); };
  table.take_activities = take_all;
  table.stop_activities = [] {
    const std::scoped_lock lock(recording_mutex);
    recording.reset();
  };
}

}  // namespace pipewright::tests::host
