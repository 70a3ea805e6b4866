// Messages between the stages of a graph: a send never waits for its receiver, and a receive waits
// for what it names, whatever else comes before.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "exec/base/packing.hpp"

namespace pipewright::exec::graphs {

/// Which message it is, of which micro-batch, and from which rank.
using MailKey = std::tuple<std::size_t, std::size_t, int>;

/// Messages that have come; those of one key are taken in the order in which they came.
class PigeonHoles {
 public:
  bool has(const MailKey& key) const { return waiting_.contains(key); }
  void put(const MailKey& key, std::vector<float> values);
  std::vector<float> take(const MailKey& key);

 private:
  std::map<MailKey, std::deque<std::vector<float>>> waiting_;
};

class StageMail {
 public:
  virtual ~StageMail() = default;
  virtual void post(int to, const MailKey& key, std::vector<float> values) = 0;
  virtual std::vector<float> take(int rank, const MailKey& key) = 0;
};

/// Of ranks that are threads.
class ThreadMail final : public StageMail {
 public:
  explicit ThreadMail(const std::vector<int>& ranks);

  void post(int to, const MailKey& key, std::vector<float> values) override;
  /// Throws RunError when it has been closed.
  std::vector<float> take(int rank, const MailKey& key) override;
  /// Ends all that wait, and those to come.
  void close() noexcept;

 private:
  struct Box {
    std::mutex guard;
    std::condition_variable arrived;
    PigeonHoles holes;
    bool closed = false;
  };
  std::map<int, Box> boxes_;
};

/// What carries bytes from process to process, in order from one to another. A post does not wait
/// for its receiver.
struct ProcessPost {
  std::function<void(int to, PackedBytes bytes)> post = {};
  std::function<PackedBytes(int from)> take = {};
};

/// Of a rank that is a process, as the others are.
class ProcessMail final : public StageMail {
 public:
  explicit ProcessMail(const ProcessPost& post) : post_(post) {}

  void post(int to, const MailKey& key, std::vector<float> values) override;
  std::vector<float> take(int rank, const MailKey& key) override;

 private:
  const ProcessPost& post_;
  PigeonHoles holes_;
};

}  // namespace pipewright::exec::graphs
