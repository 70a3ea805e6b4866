// What any process of a job tells another beside the collectives of their groups: in order from one
// to another, whenever it is taken. A letter that is half sent goes on while its sender waits for
// anything, if the groups among which it waits look around with advance().
#pragma once

#include <memory>
#include <vector>

#include "exec/collectives/process/mail.hpp"

namespace pipewright::exec::collectives {

class Letters {
 public:
  /// Every process of the job makes it, in one order with the groups of the mail. The mail's link
  /// has to outlive it.
  explicit Letters(std::shared_ptr<Mail> mail);
  ~Letters();
  Letters(const Letters&) = delete;
  Letters& operator=(const Letters&) = delete;

  /// Waits only while very many are on their way.
  void post(int to, PackedBytes bytes);
  /// The next one of that process. Waits for it.
  PackedBytes take(int from);
  /// Takes what has come, lets go on what is half sent, and looks who is there. As the others it
  /// throws GivenUp or RunError where any process of the job is gone.
  void advance() { mail_->advance(number_); }

 private:
  const std::shared_ptr<Mail> mail_;
  const std::uint32_t number_;
  std::vector<int> processes_;
  std::vector<std::uint64_t> sent_, received_;  // by process
};

}  // namespace pipewright::exec::collectives
