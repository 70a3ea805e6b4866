#include "tools/running/run_log_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/text_file.hpp"
#include "exec/runtime/runtime.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/input/run_log_file.hpp"

namespace pipewright::tools {
namespace {

std::string log_line(const Json& fields) {
  return fields.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int open_to_append(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown) && !is_run_log(path) &&
      !(std::filesystem::is_regular_file(path, unknown) &&
        std::filesystem::file_size(path, unknown) == 0)) {
    throw InputError(path, "", "is there and is no log of a run; give --log another name");
  }
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw MachineError("cannot write " + path + ": " + std::strerror(errno));
  return file;
}

/// Where the file system has no locks, nobody can tell who writes, and the run goes on all the
/// same.
void lock_log(int file, const std::string& path) {
  struct flock all {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  if (::fcntl(file, F_OFD_SETLK, &all) == 0 || (errno != EAGAIN && errno != EACCES)) return;
  throw InputError(path, "", "another run writes into it; give --log another name");
}

bool ends_within_a_line(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

Flag run_log_flag() {
  return {.group = "Output",
          .name = "--log",
          .argument = "FILE",
          .help =
              "write each step's time and loss as it ends, a line of JSON, below what is there; "
              "analyze FILE --watch follows it",
          .is_file = true,
          .writes = Writes::Journal};
}

RunLogWriter::RunLogWriter(const std::string& path, std::string title, std::string policy,
                           Session& session)
    : path_(path),
      title_(std::move(title)),
      policy_(std::move(policy)),
      session_(session),
      file_(open_to_append(path)) {
  lock_log(file_.get(), path);
}

void RunLogWriter::begin(std::int64_t first, std::int64_t all) {
  begun_ = std::chrono::steady_clock::now();
  last_ = first;
  is_open_ = true;
  write((ends_within_a_line(file_.get()) ? "\n" : "") + log_line({{"schema", kRunLogSchema},
                                                                  {"title", title_},
                                                                  {"policy", policy_},
                                                                  {"host", name_of_this_host()},
                                                                  {"first_step", first},
                                                                  {"all_steps", all}}));
}

void RunLogWriter::step(std::int64_t number, const exec::StepResult& result) {
  if (!is_open_ || number <= last_) return;
  last_ = number;
  const auto since = std::chrono::steady_clock::now() - begun_;
  Json fields = {{"step", number}, {"step_ns", result.step_ns}};
  if (result.loss) fields["loss"] = std::isfinite(*result.loss) ? Json(*result.loss) : Json();
  fields["ended_ns"] = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  write(log_line(fields));
}

void RunLogWriter::end(std::string_view outcome) {
  if (is_open_) write(log_line({{"outcome", std::string(outcome)}}));
  is_open_ = false;
}

void RunLogWriter::end_with(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const exec::RunFailed& failed) {
    const exec::RunResult& result = failed.result();
    const auto last = static_cast<std::int64_t>(result.steps.size());
    if (result.outcome == exec::Outcome::Diverged && last > 0)
      step(result.first_step + last, result.steps.back());
    end(to_string(result.outcome));
  } catch (const Interrupted&) {
    end(to_string(exec::Outcome::Interrupted));
  } catch (...) {
    end(to_string(exec::Outcome::Failed));
  }
}

/// A full disk ends the log and not the training.
void RunLogWriter::write(const std::string& line) {
  if (!is_open_) return;
  const int failure = write_all(file_.get(), std::as_bytes(std::span(line)));
  if (failure == 0) return;
  is_open_ = false;
  session_.note(path_ + ": " + std::strerror(failure) + "; the log ends here, the run goes on");
}

}  // namespace pipewright::tools
