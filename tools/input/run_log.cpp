#include "tools/input/run_log.hpp"

#include <cstddef>
#include <limits>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_fields.hpp"

namespace pipewright::tools {
namespace {

constexpr std::int64_t kMostLoggedSteps = 1'000'000'000;
constexpr std::int64_t kMostTime = 100'000'000'000'000'000;  // three years
constexpr double kMostLoss = std::numeric_limits<double>::max();
constexpr std::size_t kLongestLine = 1 << 20;

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

bool begins_run_log(std::string_view start) {
  return start.substr(0, start.find('\n')).find("\"pipewright.log/") != start.npos;
}

void RunLogLines::add(std::string_view bytes) {
  rest_.append(bytes);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = rest_.find('\n', begin)) != rest_.npos; begin = end + 1)
    take(std::string_view(rest_).substr(begin, end - begin));
  rest_.erase(0, begin);
  if (rest_.size() <= kLongestLine) return;
  throw InputError(file_, "line " + std::to_string(line_ + 1),
                   "has no end; expected a line of run --log");
}

void RunLogLines::require_sound() const {
  if (!broken_.empty() && rest_.empty()) throw InputError(broken_);
}

/// A run that was killed may leave half a line; the next run's head comes behind it.
void RunLogLines::take(std::string_view line) {
  const std::string place = "line " + std::to_string(++line_);
  Json document;
  try {
    document = parse_json(line, file_);
  } catch (const InputError&) {
    if (broken_.empty())
      broken_ = InputError(file_, place, "is no JSON; expected a line of run --log").what();
    return;
  }
  const JsonCursor cursor(document, file_, place);
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

}  // namespace pipewright::tools
