#include "tools/input/run_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_fields.hpp"
#include "core/base/text_file.hpp"

namespace pipewright::tools {
namespace {

constexpr std::int64_t kMostLoggedSteps = 1'000'000'000;
constexpr std::int64_t kMostTime = std::numeric_limits<std::int64_t>::max();
constexpr double kMostLoss = std::numeric_limits<double>::max();
constexpr std::size_t kLogPiece = 1 << 16, kLongestLine = 1 << 20;

std::string start_of(const std::string& path) {
  const Descriptor file(open_to_read(path));
  std::array<char, 256> start{};
  const ssize_t size = ::pread(file.get(), start.data(), start.size(), 0);
  return {start.data(), static_cast<std::size_t>(size < 0 ? 0 : size)};
}

bool is_plain_file(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown);
}

/// Complains where it is not; there is a job behind a log, and a user who has mistyped its name.
const std::string& require_run_log(const std::string& path) {
  static const std::string kExpected =
      "expected the log of a run, as run --log writes it and --watch follows it";
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown))
    throw InputError(path, "", "is not there; " + kExpected);
  if (!is_plain_file(path)) throw InputError(path, "", "is no plain file; " + kExpected);
  if (is_run_log(path)) return path;
  throw InputError(path, "",
                   (start_of(path).empty() ? "is empty; " : "is something else; ") + kExpected);
}

RunLogHead read_head(const JsonCursor& line) {
  require_schema(line, "log");
  line.only({"schema", "title", "policy", "host", "first_step", "all_steps"});
  return {.title = line.at("title").string(),
          .policy = line.at("policy").string(),
          .host = line.at("host").string(),
          .first = line.at("first_step").integer(0, kMostLoggedSteps),
          .all = line.at("all_steps").integer(0, kMostLoggedSteps)};
}

LoggedStep read_step(const JsonCursor& line, std::int64_t expected) {
  line.only({"step", "step_ns", "loss", "ended_ns"});
  const JsonCursor number = line.at("step");
  if (number.integer(1, kMostLoggedSteps) != expected)
    number.fail("step " + std::to_string(expected));
  LoggedStep step;
  step.result.step_ns = line.at("step_ns").integer(0, kMostTime);
  step.ended_ns = line.at("ended_ns").integer(0, kMostTime);
  if (const auto loss = line.find("loss")) {
    step.result.loss = loss->value().is_null() ? std::numeric_limits<double>::quiet_NaN()
                                               : loss->number(-kMostLoss, kMostLoss);
  }
  return step;
}

}  // namespace

bool is_run_log(const std::string& path) {
  if (!is_plain_file(path)) return false;
  const std::string start = start_of(path);
  return start.substr(0, start.find('\n')).find("\"pipewright.log/") != start.npos;
}

RunLogReader::RunLogReader(const std::string& path)
    : path_(path), file_(open_to_read(require_run_log(path))) {
  read_on();
  if (log_.runs == 0) throw InputError(path, "line 1", "has no end yet; try again");
}

bool RunLogReader::read_on() {
  const std::int64_t before = taken_;
  std::string piece(kLogPiece, '\0');
  for (;;) {
    const ssize_t got = ::pread(file_.get(), piece.data(), piece.size(), taken_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(path_, "", std::strerror(errno));
    if (got == 0) break;
    taken_ += got;
    rest_.append(piece.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest_.find('\n', begin)) != rest_.npos; begin = end + 1)
      take(std::string_view(rest_).substr(begin, end - begin));
    rest_.erase(0, begin);
    if (rest_.size() > kLongestLine)
      throw InputError(path_, "line " + std::to_string(line_ + 1),
                       "has no end; expected a line of run --log");
  }
  if (!broken_.empty() && rest_.empty()) throw InputError(broken_);
  if (::lseek(file_.get(), 0, SEEK_END) < taken_)
    throw InputError(path_, "", "has become shorter while it was read; start again");
  return taken_ != before;
}

/// A run that was killed may leave half a line; the next run's head comes behind it.
void RunLogReader::take(std::string_view line) {
  const std::string place = "line " + std::to_string(++line_);
  Json document;
  try {
    document = parse_json(line, path_);
  } catch (const InputError&) {
    if (broken_.empty())
      broken_ = InputError(path_, place, "is no JSON; expected a line of run --log").what();
    return;
  }
  const JsonCursor cursor(document, path_, place);
  if (cursor.find("schema")) {
    log_ = {.head = read_head(cursor), .steps = {}, .outcome = {}, .runs = log_.runs + 1};
    broken_.clear();
    return;
  }
  if (!broken_.empty()) throw InputError(broken_);
  if (log_.runs == 0 || !log_.outcome.empty()) cursor.fail("the head of a run");
  if (const auto outcome = cursor.find("outcome")) {
    log_.outcome = read_name(*outcome);
    return;
  }
  const auto done = static_cast<std::int64_t>(log_.steps.size());
  log_.steps.push_back(read_step(cursor, log_.head.first + done + 1));
}

bool RunLogReader::may_grow() const {
  if (log_.head.host != name_of_this_host()) return true;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::string name_of_this_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

}  // namespace pipewright::tools
