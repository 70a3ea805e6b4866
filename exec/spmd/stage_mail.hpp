// Messages between the stages of a graph, which ranks that are threads hand over: a send never
// waits, and a receive waits for what it names.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace pipewright::exec::graphs {

/// Which message it is, of which micro-batch, and from which rank.
using MailKey = std::tuple<std::size_t, std::size_t, int>;

class StageMail {
 public:
  explicit StageMail(const std::vector<int>& ranks);

  void post(int to, const MailKey& key, std::vector<float> values);
  /// Those of one key come in the order in which they were posted. Throws RunError when it has been
  /// closed.
  std::vector<float> take(int rank, const MailKey& key);
  /// Ends all that wait, and those to come.
  void close() noexcept;

 private:
  struct Box {
    std::mutex guard;
    std::condition_variable arrived;
    std::map<MailKey, std::deque<std::vector<float>>> waiting;
    bool closed = false;
  };
  std::map<int, Box> boxes_;
};

}  // namespace pipewright::exec::graphs
