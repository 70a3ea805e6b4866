#include "exec/transports/process/all_gather.hpp"

#include <optional>

#include "exec/base/waiting.hpp"

namespace pipewright::exec::mpi {
namespace {

constexpr int kGatherTurnsPerLook = 64;
constexpr std::int64_t kFirstGatherSleepNs = 5'000, kLongestGatherSleepNs = 500'000;

Frame frame_with(std::uint32_t run, const std::string& text) {
  Packer packer;
  packer.put_text(text);
  Frame frame;
  frame.head.kind = FrameKind::Part;
  frame.head.run = run;
  frame.note = packer.take();
  frame.head.note_bytes = static_cast<std::uint32_t>(frame.note.size());
  return frame;
}

std::string text_of(const Frame& frame) {
  Unpacker unpacker(frame.note);
  return unpacker.get_text();
}

}  // namespace

void require_present(Link& link, int process) {
  const std::string who = "process " + std::to_string(process);
  if (const auto& failure = link.failure_of(process))
    throw GivenUp(who + " has given up: " + failure->text);
  if (link.presence().is_gone(process))
    throw RunError(who + " is gone: its " + link.presence().how_lost(process));
}

std::vector<std::string> all_gather(Link& link, const std::string& text,
                                    const std::function<void()>& while_waiting) {
  const int own = link.process(), processes = link.processes();
  std::vector<std::optional<std::string>> texts(static_cast<std::size_t>(processes));
  texts[static_cast<std::size_t>(own)] = text;
  const LinkRun run(link);
  {
    const std::scoped_lock lock(link.mutex());
    for (int p = 0; p < processes; ++p) {
      if (p != own) link.send(p, frame_with(run.number(), text));
    }
  }
  int missing = processes - 1;
  std::int64_t nap = kFirstGatherSleepNs;
  for (int turn = 1;; ++turn) {
    bool heard = false, is_at_rest = false;
    {
      const std::scoped_lock lock(link.mutex());
      while (auto arrived = link.receive(run.number())) {
        texts[static_cast<std::size_t>(arrived->from)] = text_of(arrived->frame);
        --missing;
        heard = true;
      }
      link.take_sent(run.number());
      is_at_rest = link.wire().is_at_rest();
      if (turn % kGatherTurnsPerLook == 0) link.look_around();
      for (int p = 0; p < processes; ++p) {
        if (!texts[static_cast<std::size_t>(p)]) require_present(link, p);
      }
    }
    // What is half sent needs this process to go on.
    if (missing == 0 && is_at_rest) break;
    if (while_waiting) while_waiting();
    nap = heard ? kFirstGatherSleepNs : std::min(2 * nap, kLongestGatherSleepNs);
    local::sleep_until_steady(local::steady_ns() + nap);
  }
  std::vector<std::string> all;
  for (const auto& each : texts) all.push_back(*each);
  return all;
}

}  // namespace pipewright::exec::mpi
