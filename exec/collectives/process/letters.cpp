#include "exec/collectives/process/letters.hpp"

#include <numeric>
#include <utility>

namespace pipewright::exec::collectives {

Letters::Letters(std::shared_ptr<Mail> mail)
    : mail_(std::move(mail)),
      number_(mail_->open_group([this] { mail_->require_all_present(); })),
      processes_(static_cast<std::size_t>(mail_->link().processes())),
      sent_(processes_.size()),
      received_(processes_.size()) {
  std::iota(processes_.begin(), processes_.end(), 0);
}

Letters::~Letters() { mail_->close_group(number_, processes_, sent_); }

void Letters::post(int to, PackedBytes bytes) {
  mail_->send(number_, to, sent_[index_of(to)]++, {.bytes = std::move(bytes)});
}

PackedBytes Letters::take(int from) {
  return mail_->receive(number_, from, received_[index_of(from)]++).bytes;
}

}  // namespace pipewright::exec::collectives
